CREATE TABLE edit_scores (
	run_id INTEGER NOT NULL,
	judge TEXT NOT NULL,
	rubric TEXT NOT NULL,
	factor TEXT NOT NULL,
	position BIGINT NOT NULL,
	mean DOUBLE NOT NULL,
	low DOUBLE NOT NULL,
	high DOUBLE NOT NULL,
	PRIMARY KEY (run_id, judge, rubric, factor, position)
) WITHOUT ROWID;
CREATE INDEX edit_scores_by_mean ON edit_scores (run_id, judge, rubric, factor, mean);
CREATE TABLE edit_score_fills (
	run_id INTEGER NOT NULL,
	judge TEXT NOT NULL,
	filled DOUBLE NOT NULL,
	seconds DOUBLE NOT NULL,
	stale BOOLEAN NOT NULL,
	choices TEXT NOT NULL,
	PRIMARY KEY (run_id, judge)
);
