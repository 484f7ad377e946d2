DROP INDEX scores_by_factor;
ALTER TABLE scores RENAME TO old_scores;
CREATE TABLE scores (
	"key" TEXT NOT NULL,
	factor TEXT NOT NULL,
	position SMALLINT NOT NULL,
	score DOUBLE,
	choice TEXT,
	expected DOUBLE,
	mass DOUBLE,
	status TEXT DEFAULT 'ok' NOT NULL,
	PRIMARY KEY ("key", factor),
	CONSTRAINT a_score_exists_only_in_ok CHECK (status = 'ok'),
	FOREIGN KEY("key", status) REFERENCES judgements ("key", status) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX scores_by_factor ON scores (factor, score, "key");
INSERT INTO scores ("key", factor, position, score, choice, expected, status)
SELECT "key", factor, position, score, choice, expected, status FROM old_scores;
DROP TABLE old_scores;
DROP INDEX tasks_by_position;
DROP INDEX tasks_by_key;
ALTER TABLE tasks RENAME TO old_tasks;
CREATE TABLE tasks (
	run_id INTEGER NOT NULL,
	item TEXT NOT NULL,
	rubric TEXT NOT NULL,
	judge TEXT NOT NULL,
	repeat INTEGER NOT NULL,
	variant TEXT DEFAULT '' NOT NULL,
	position BIGINT NOT NULL,
	"key" TEXT NOT NULL,
	PRIMARY KEY (run_id, item, rubric, judge, repeat, variant),
	FOREIGN KEY(run_id) REFERENCES runs (id)
);
CREATE INDEX tasks_by_position ON tasks (run_id, position);
CREATE INDEX tasks_by_key ON tasks ("key");
INSERT INTO tasks (run_id, item, rubric, judge, repeat, position, "key")
SELECT run_id, item, rubric, judge, repeat, position, "key" FROM old_tasks;
DROP TABLE old_tasks;
