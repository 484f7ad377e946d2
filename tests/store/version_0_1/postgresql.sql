CREATE TABLE meta (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
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
	PRIMARY KEY (id), 
	UNIQUE (name)
);
CREATE TABLE rubrics (
	hash TEXT NOT NULL, 
	name VARCHAR COLLATE "C" NOT NULL, 
	content TEXT NOT NULL, 
	PRIMARY KEY (hash)
);
CREATE TABLE judgements (
	key TEXT NOT NULL, 
	status TEXT NOT NULL, 
	judge VARCHAR COLLATE "C" NOT NULL, 
	rubric VARCHAR COLLATE "C" NOT NULL, 
	rubric_hash TEXT NOT NULL, 
	repeat INTEGER NOT NULL, 
	scores TEXT, 
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
	PRIMARY KEY (key), 
	CONSTRAINT a_score_exists_only_in_ok CHECK ((status = 'ok') = (scores IS NOT NULL))
);
CREATE INDEX judgements_by_status ON judgements (key, status);
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
CREATE TABLE digests (
	path VARCHAR COLLATE "C" NOT NULL, 
	size BIGINT NOT NULL, 
	mtime_ns BIGINT NOT NULL, 
	digest TEXT NOT NULL, 
	info TEXT, 
	problem VARCHAR COLLATE "C" NOT NULL, 
	PRIMARY KEY (path)
);
CREATE TABLE ratings (
	item VARCHAR COLLATE "C" NOT NULL, 
	rater VARCHAR COLLATE "C" NOT NULL, 
	factor VARCHAR COLLATE "C" NOT NULL, 
	score DOUBLE PRECISION NOT NULL, 
	created DOUBLE PRECISION NOT NULL, 
	PRIMARY KEY (item, rater, factor)
);
CREATE TABLE checks (
	key TEXT NOT NULL, 
	evidence TEXT NOT NULL, 
	rules INTEGER NOT NULL, 
	factors TEXT NOT NULL, 
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
	PRIMARY KEY (run_id, item), 
	FOREIGN KEY(run_id) REFERENCES runs (id)
);
CREATE INDEX items_by_position ON items (run_id, position);
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
CREATE TABLE batch_lines (
	batch_id INTEGER NOT NULL, 
	key TEXT NOT NULL, 
	status INTEGER, 
	answer BYTEA, 
	PRIMARY KEY (batch_id, key), 
	FOREIGN KEY(batch_id) REFERENCES batches (id)
);
CREATE INDEX batch_lines_by_key ON batch_lines (key);
CREATE TABLE assignments (
	study_id INTEGER NOT NULL, 
	rater VARCHAR COLLATE "C" NOT NULL, 
	number INTEGER NOT NULL, 
	item VARCHAR COLLATE "C" NOT NULL, 
	control BOOLEAN NOT NULL, 
	PRIMARY KEY (study_id, rater, number), 
	FOREIGN KEY(study_id) REFERENCES studies (id)
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
