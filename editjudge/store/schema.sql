CREATE TABLE annotations (
    content TEXT NOT NULL,
    tags TEXT NOT NULL,
    note TEXT NOT NULL,
    updated DOUBLE NOT NULL,
    PRIMARY KEY (content)
);
CREATE TABLE batches (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    run_id INTEGER NOT NULL,
    judge TEXT NOT NULL,
    mark TEXT NOT NULL,
    provider_id TEXT,
    state TEXT NOT NULL,
    questions INTEGER NOT NULL,
    created DOUBLE NOT NULL,
    updated DOUBLE NOT NULL,
    UNIQUE (mark)
);
CREATE TABLE claims (
    "key" TEXT NOT NULL,
    owner TEXT NOT NULL,
    until DOUBLE NOT NULL,
    PRIMARY KEY ("key")
);
CREATE TABLE digests (
    path TEXT NOT NULL,
    size BIGINT NOT NULL,
    mtime_ns BIGINT NOT NULL,
    digest TEXT NOT NULL,
    info TEXT,
    problem TEXT NOT NULL,
    ctime_ns BIGINT,
    inode BIGINT,
    PRIMARY KEY (path)
);
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
    schema_mode TEXT,
    prepared TEXT NOT NULL,
    cost DOUBLE,
    created DOUBLE NOT NULL,
    "order" TEXT,
    attempts INTEGER NOT NULL,
    usage TEXT NOT NULL,
    server_model TEXT,
    PRIMARY KEY ("key")
);
CREATE UNIQUE INDEX judgements_by_status ON judgements ("key", status);
CREATE TABLE meta (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (name)
);
CREATE TABLE ratings (
    content TEXT NOT NULL,
    rubric TEXT NOT NULL,
    rater TEXT NOT NULL,
    factor TEXT NOT NULL,
    item TEXT NOT NULL,
    score DOUBLE NOT NULL,
    created DOUBLE NOT NULL,
    study_id INTEGER,
    choice TEXT,
    PRIMARY KEY (content, rubric, rater, factor)
);
CREATE TABLE replies (
    id INTEGER NOT NULL,
    "key" TEXT NOT NULL,
    mark BIGINT NOT NULL,
    at DOUBLE NOT NULL,
    outcome TEXT NOT NULL,
    finish TEXT NOT NULL,
    text BLOB NOT NULL,
    usage TEXT NOT NULL,
    model TEXT,
    request_id TEXT,
    latency DOUBLE,
    retries INTEGER NOT NULL,
    reasons TEXT NOT NULL,
    PRIMARY KEY (id)
);
CREATE UNIQUE INDEX replies_by_key ON replies ("key", mark);
CREATE TABLE rubrics (
    hash TEXT NOT NULL,
    name TEXT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (hash)
);
CREATE TABLE runs (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    spec TEXT NOT NULL,
    spec_hash TEXT NOT NULL,
    state TEXT NOT NULL,
    created DOUBLE NOT NULL,
    updated DOUBLE NOT NULL,
    summary TEXT,
    version TEXT NOT NULL,
    imported_from TEXT,
    UNIQUE (name)
);
CREATE TABLE studies (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    run_id INTEGER NOT NULL,
    rubrics TEXT NOT NULL,
    overlap INTEGER NOT NULL,
    quota INTEGER NOT NULL,
    controls INTEGER NOT NULL,
    seed BIGINT NOT NULL,
    created DOUBLE NOT NULL,
    models TEXT,
    "query" TEXT,
    closed DOUBLE,
    UNIQUE (name)
);
CREATE TABLE answers (
    study_id INTEGER NOT NULL,
    rater TEXT NOT NULL,
    number INTEGER NOT NULL,
    factor TEXT NOT NULL,
    score DOUBLE,
    reason TEXT NOT NULL,
    created DOUBLE NOT NULL,
    choice TEXT,
    PRIMARY KEY (study_id, rater, number, factor),
    FOREIGN KEY(study_id) REFERENCES studies (id)
);
CREATE TABLE assignments (
    study_id INTEGER NOT NULL,
    rater TEXT NOT NULL,
    number INTEGER NOT NULL,
    item TEXT NOT NULL,
    control BOOLEAN NOT NULL,
    PRIMARY KEY (study_id, rater, number),
    FOREIGN KEY(study_id) REFERENCES studies (id)
);
CREATE TABLE batch_lines (
    batch_id INTEGER NOT NULL,
    "key" TEXT NOT NULL,
    status INTEGER,
    answer BLOB,
    PRIMARY KEY (batch_id, "key"),
    FOREIGN KEY(batch_id) REFERENCES batches (id)
);
CREATE INDEX batch_lines_by_key ON batch_lines ("key");
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
CREATE TABLE items (
    run_id INTEGER NOT NULL,
    item TEXT NOT NULL,
    position BIGINT NOT NULL,
    model TEXT,
    edit_type TEXT,
    group_ TEXT,
    instruction TEXT NOT NULL,
    referring_expression TEXT NOT NULL,
    images TEXT NOT NULL,
    metadata TEXT NOT NULL,
    content TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (run_id, item),
    FOREIGN KEY(run_id) REFERENCES runs (id)
);
CREATE INDEX items_by_position ON items (run_id, position);
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
)
 WITHOUT ROWID;
CREATE INDEX scores_by_factor ON scores (factor, score, "key");
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
CREATE INDEX tasks_by_key ON tasks ("key");
CREATE INDEX tasks_by_position ON tasks (run_id, position);
CREATE TABLE views (
    run_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    "query" TEXT NOT NULL,
    created DOUBLE NOT NULL,
    PRIMARY KEY (run_id, name),
    FOREIGN KEY(run_id) REFERENCES runs (id)
);
INSERT INTO meta (name, value) VALUES ('schema_version', '11');
