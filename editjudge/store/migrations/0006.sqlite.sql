-- Digests are trusted by inode, keys are claimed, runs imported, raters invited; ratings belong to contents.
ALTER TABLE digests ADD COLUMN ctime_ns BIGINT;
ALTER TABLE digests ADD COLUMN inode BIGINT;
CREATE TABLE claims (
	"key" TEXT NOT NULL,
	owner TEXT NOT NULL,
	until DOUBLE NOT NULL,
	PRIMARY KEY ("key")
);
ALTER TABLE runs ADD COLUMN imported_from TEXT;
CREATE TABLE invitations (
	study_id INTEGER NOT NULL,
	rater TEXT NOT NULL,
	code TEXT NOT NULL,
	created DOUBLE NOT NULL,
	revoked DOUBLE,
	PRIMARY KEY (study_id, rater),
	FOREIGN KEY(study_id) REFERENCES studies (id),
	UNIQUE (code)
);
ALTER TABLE items ADD COLUMN content TEXT DEFAULT '' NOT NULL;
ALTER TABLE ratings RENAME TO old_ratings;
CREATE TABLE ratings (
	content TEXT NOT NULL,
	rubric TEXT NOT NULL,
	rater TEXT NOT NULL,
	factor TEXT NOT NULL,
	item TEXT NOT NULL,
	score DOUBLE NOT NULL,
	created DOUBLE NOT NULL,
	study_id INTEGER,
	PRIMARY KEY (content, rubric, rater, factor)
);
