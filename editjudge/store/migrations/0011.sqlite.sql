-- Tags and notes; studies of some models or of a filter, which can be closed.
CREATE TABLE annotations (
	content TEXT NOT NULL,
	tags TEXT NOT NULL,
	note TEXT NOT NULL,
	updated DOUBLE NOT NULL,
	PRIMARY KEY (content)
);
CREATE TABLE views (
	run_id INTEGER NOT NULL,
	name TEXT NOT NULL,
	query TEXT NOT NULL,
	created DOUBLE NOT NULL,
	PRIMARY KEY (run_id, name),
	FOREIGN KEY(run_id) REFERENCES runs (id)
);
ALTER TABLE studies ADD COLUMN models TEXT;
ALTER TABLE studies ADD COLUMN query TEXT;
ALTER TABLE studies ADD COLUMN closed DOUBLE;
