CREATE TABLE batches (
	id SERIAL NOT NULL,
	run_id INTEGER NOT NULL,
	judge VARCHAR COLLATE "C" NOT NULL,
	mark TEXT NOT NULL,
	provider_id VARCHAR COLLATE "C",
	state TEXT NOT NULL,
	questions INTEGER NOT NULL,
	created DOUBLE PRECISION NOT NULL,
	updated DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (mark)
);
CREATE TABLE checks (
	key TEXT NOT NULL,
	evidence TEXT NOT NULL,
	rules INTEGER NOT NULL,
	factors TEXT NOT NULL,
	PRIMARY KEY (key)
);
CREATE TABLE claims (
	key TEXT NOT NULL,
	owner TEXT NOT NULL,
	until DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (key)
);
CREATE TABLE contradictions (
	key TEXT NOT NULL,
	factor VARCHAR COLLATE "C" NOT NULL,
	measured VARCHAR COLLATE "C" NOT NULL,
	says VARCHAR COLLATE "C" NOT NULL,
	evidence TEXT NOT NULL,
	PRIMARY KEY (key, factor, measured)
);
CREATE TABLE digests (
	path VARCHAR COLLATE "C" NOT NULL,
	size BIGINT NOT NULL,
	mtime_ns BIGINT NOT NULL,
	digest TEXT NOT NULL,
	info TEXT,
	problem VARCHAR COLLATE "C" NOT NULL,
	ctime_ns BIGINT,
	inode BIGINT,
	PRIMARY KEY (path)
);
CREATE TABLE judgements (
	key TEXT NOT NULL,
	status TEXT NOT NULL,
	judge VARCHAR COLLATE "C" NOT NULL,
	rubric VARCHAR COLLATE "C" NOT NULL,
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
	cost DOUBLE PRECISION,
	server_model VARCHAR COLLATE "C",
	schema_mode TEXT,
	prepared TEXT NOT NULL,
	created DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (key)
);
CREATE UNIQUE INDEX judgements_by_status ON judgements (key, status);
CREATE TABLE meta (
	name TEXT NOT NULL,
	value TEXT NOT NULL,
	PRIMARY KEY (name)
);
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
CREATE TABLE replies (
	id BIGSERIAL NOT NULL,
	key TEXT NOT NULL,
	mark BIGINT NOT NULL,
	at DOUBLE PRECISION NOT NULL,
	outcome VARCHAR COLLATE "C" NOT NULL,
	finish VARCHAR COLLATE "C" NOT NULL,
	text BYTEA NOT NULL,
	usage TEXT NOT NULL,
	model VARCHAR COLLATE "C",
	request_id VARCHAR COLLATE "C",
	latency DOUBLE PRECISION,
	retries INTEGER NOT NULL,
	reasons TEXT NOT NULL,
	PRIMARY KEY (id)
);
CREATE UNIQUE INDEX replies_by_key ON replies (key, mark);
CREATE TABLE rubrics (
	hash TEXT NOT NULL,
	name VARCHAR COLLATE "C" NOT NULL,
	content TEXT NOT NULL,
	PRIMARY KEY (hash)
);
CREATE TABLE runs (
	id SERIAL NOT NULL,
	name VARCHAR COLLATE "C" NOT NULL,
	spec TEXT NOT NULL,
	spec_hash TEXT NOT NULL,
	state TEXT NOT NULL,
	created DOUBLE PRECISION NOT NULL,
	updated DOUBLE PRECISION NOT NULL,
	summary TEXT,
	version TEXT NOT NULL,
	imported_from VARCHAR COLLATE "C",
	PRIMARY KEY (id),
	UNIQUE (name)
);
CREATE TABLE studies (
	id SERIAL NOT NULL,
	name VARCHAR COLLATE "C" NOT NULL,
	run_id INTEGER NOT NULL,
	rubrics TEXT NOT NULL,
	overlap INTEGER NOT NULL,
	quota INTEGER NOT NULL,
	controls INTEGER NOT NULL,
	seed BIGINT NOT NULL,
	created DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (name)
);
CREATE TABLE answers (
	study_id INTEGER NOT NULL,
	rater VARCHAR COLLATE "C" NOT NULL,
	number INTEGER NOT NULL,
	factor VARCHAR COLLATE "C" NOT NULL,
	score DOUBLE PRECISION,
	reason VARCHAR COLLATE "C" NOT NULL,
	created DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (study_id, rater, number, factor),
	FOREIGN KEY(study_id) REFERENCES studies (id)
);
CREATE TABLE assignments (
	study_id INTEGER NOT NULL,
	rater VARCHAR COLLATE "C" NOT NULL,
	number INTEGER NOT NULL,
	item VARCHAR COLLATE "C" NOT NULL,
	control BOOLEAN NOT NULL,
	PRIMARY KEY (study_id, rater, number),
	FOREIGN KEY(study_id) REFERENCES studies (id)
);
CREATE TABLE batch_lines (
	batch_id INTEGER NOT NULL,
	key TEXT NOT NULL,
	status INTEGER,
	answer BYTEA,
	PRIMARY KEY (batch_id, key),
	FOREIGN KEY(batch_id) REFERENCES batches (id)
);
CREATE INDEX batch_lines_by_key ON batch_lines (key);
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
CREATE TABLE items (
	run_id INTEGER NOT NULL,
	item VARCHAR COLLATE "C" NOT NULL,
	position BIGINT NOT NULL,
	model VARCHAR COLLATE "C",
	edit_type VARCHAR COLLATE "C",
	group_ VARCHAR COLLATE "C",
	instruction VARCHAR COLLATE "C" NOT NULL,
	referring_expression VARCHAR COLLATE "C" NOT NULL,
	images TEXT NOT NULL,
	metadata TEXT NOT NULL,
	content TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (run_id, item),
	FOREIGN KEY(run_id) REFERENCES runs (id)
);
CREATE INDEX items_by_position ON items (run_id, position);
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
CREATE TABLE tasks (
	run_id INTEGER NOT NULL,
	item VARCHAR COLLATE "C" NOT NULL,
	rubric VARCHAR COLLATE "C" NOT NULL,
	judge VARCHAR COLLATE "C" NOT NULL,
	repeat INTEGER NOT NULL,
	position BIGINT NOT NULL,
	key TEXT NOT NULL,
	PRIMARY KEY (run_id, item, rubric, judge, repeat),
	FOREIGN KEY(run_id) REFERENCES runs (id)
);
CREATE INDEX tasks_by_key ON tasks (key);
CREATE INDEX tasks_by_position ON tasks (run_id, position);
