-- Tags and notes; studies of some models or of a filter, which can be closed.
CREATE TABLE annotations (
	content VARCHAR COLLATE "C" NOT NULL,
	tags TEXT NOT NULL,
	note VARCHAR COLLATE "C" NOT NULL,
	updated DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (content)
);
CREATE TABLE views (
	run_id INTEGER NOT NULL,
	name VARCHAR COLLATE "C" NOT NULL,
	query VARCHAR COLLATE "C" NOT NULL,
	created DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (run_id, name),
	FOREIGN KEY(run_id) REFERENCES runs (id)
);
ALTER TABLE studies ADD COLUMN models TEXT;
ALTER TABLE studies ADD COLUMN query VARCHAR COLLATE "C";
ALTER TABLE studies ADD COLUMN closed DOUBLE PRECISION;
