-- Digests are trusted by inode, keys are claimed, runs imported, raters invited; ratings belong to contents.
ALTER TABLE digests ADD COLUMN ctime_ns BIGINT;
ALTER TABLE digests ADD COLUMN inode BIGINT;
CREATE TABLE claims (
	key TEXT NOT NULL,
	owner TEXT NOT NULL,
	until DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (key)
);
ALTER TABLE runs ADD COLUMN imported_from VARCHAR COLLATE "C";
CREATE TABLE invitations (
	study_id INTEGER NOT NULL,
	rater VARCHAR COLLATE "C" NOT NULL,
	code TEXT NOT NULL,
	created DOUBLE PRECISION NOT NULL,
	revoked DOUBLE PRECISION,
	PRIMARY KEY (study_id, rater),
	FOREIGN KEY(study_id) REFERENCES studies (id),
	UNIQUE (code)
);
ALTER TABLE items ADD COLUMN content TEXT DEFAULT '' NOT NULL;
ALTER TABLE ratings RENAME TO old_ratings;
ALTER INDEX ratings_pkey RENAME TO old_ratings_pkey;
CREATE TABLE ratings (
	content VARCHAR COLLATE "C" NOT NULL,
	rubric TEXT NOT NULL,
	rater VARCHAR COLLATE "C" NOT NULL,
	factor VARCHAR COLLATE "C" NOT NULL,
	item VARCHAR COLLATE "C" NOT NULL,
	score DOUBLE PRECISION NOT NULL,
	created DOUBLE PRECISION NOT NULL,
	study_id INTEGER,
	PRIMARY KEY (content, rubric, rater, factor)
);
