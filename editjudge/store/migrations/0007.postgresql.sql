-- Scores have a table of their own.
DROP INDEX judgements_by_status;
CREATE UNIQUE INDEX judgements_by_status ON judgements (key, status);
CREATE TABLE scores (
	key TEXT NOT NULL,
	factor VARCHAR COLLATE "C" NOT NULL,
	position SMALLINT NOT NULL,
	score DOUBLE PRECISION NOT NULL,
	expected DOUBLE PRECISION,
	spread DOUBLE PRECISION,
	choice VARCHAR COLLATE "C",
	status TEXT DEFAULT 'ok' NOT NULL,
	PRIMARY KEY (key, factor),
	CONSTRAINT a_score_exists_only_in_ok CHECK (status = 'ok'),
	FOREIGN KEY(key, status) REFERENCES judgements (key, status) ON DELETE CASCADE
);
CREATE INDEX scores_by_factor ON scores (factor, score, key);
INSERT INTO scores (key, factor, position, score)
SELECT judgements.key, entry.factor, entry.number - 1, CAST(CAST(entry.value AS TEXT) AS DOUBLE PRECISION)
FROM judgements, json_each(CAST(judgements.scores AS JSON)) WITH ORDINALITY AS entry(factor, value, number)
WHERE judgements.scores IS NOT NULL;
ALTER TABLE judgements DROP COLUMN scores;
