CREATE TABLE edit_scores (
	run_id INTEGER NOT NULL,
	judge VARCHAR COLLATE "C" NOT NULL,
	rubric VARCHAR COLLATE "C" NOT NULL,
	factor VARCHAR COLLATE "C" NOT NULL,
	position BIGINT NOT NULL,
	mean DOUBLE PRECISION NOT NULL,
	low DOUBLE PRECISION NOT NULL,
	high DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (run_id, judge, rubric, factor, position)
);
CREATE INDEX edit_scores_by_mean ON edit_scores (run_id, judge, rubric, factor, mean);
CREATE TABLE edit_score_fills (
	run_id INTEGER NOT NULL,
	judge VARCHAR COLLATE "C" NOT NULL,
	filled DOUBLE PRECISION NOT NULL,
	seconds DOUBLE PRECISION NOT NULL,
	stale BOOLEAN NOT NULL,
	choices TEXT NOT NULL,
	PRIMARY KEY (run_id, judge)
);
