-- Scores have a table of their own.
DROP INDEX judgements_by_status;
ALTER TABLE judgements RENAME TO old_judgements;
CREATE TABLE judgements (
	"key" TEXT NOT NULL,
	status TEXT NOT NULL,
	judge TEXT NOT NULL,
	rubric TEXT NOT NULL,
	rubric_hash TEXT NOT NULL,
	repeat INTEGER NOT NULL,
	justifications TEXT,
	abstained TEXT NOT NULL,
	evidence TEXT NOT NULL,
	violations TEXT NOT NULL,
	notes TEXT NOT NULL,
	reasons TEXT NOT NULL,
	attempts INTEGER NOT NULL,
	usage TEXT NOT NULL,
	cost DOUBLE,
	server_model TEXT,
	schema_mode TEXT,
	prepared TEXT NOT NULL,
	created DOUBLE NOT NULL,
	PRIMARY KEY ("key")
);
CREATE UNIQUE INDEX judgements_by_status ON judgements ("key", status);
INSERT INTO judgements (
	"key", status, judge, rubric, rubric_hash, repeat, justifications, abstained, evidence, violations, notes, reasons,
	attempts, usage, cost, server_model, schema_mode, prepared, created
) SELECT
	"key", status, judge, rubric, rubric_hash, repeat, justifications, abstained, evidence, violations, notes, reasons,
	attempts, usage, cost, server_model, schema_mode, prepared, created
FROM old_judgements;
CREATE TABLE scores (
	"key" TEXT NOT NULL,
	factor TEXT NOT NULL,
	position SMALLINT NOT NULL,
	score DOUBLE NOT NULL,
	expected DOUBLE,
	spread DOUBLE,
	choice TEXT,
	status TEXT DEFAULT 'ok' NOT NULL,
	PRIMARY KEY ("key", factor),
	CONSTRAINT a_score_exists_only_in_ok CHECK (status = 'ok'),
	FOREIGN KEY("key", status) REFERENCES judgements ("key", status) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX scores_by_factor ON scores (factor, score, "key");
INSERT INTO scores ("key", factor, position, score)
SELECT old."key", entry."key", row_number() OVER (PARTITION BY old."key" ORDER BY entry.id) - 1, entry.value
FROM old_judgements AS old, json_each(old.scores) AS entry WHERE old.scores IS NOT NULL;
DROP TABLE old_judgements;
