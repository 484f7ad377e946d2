-- Saved views are gone; lists in the browser are read from a table of scores by edit.
DROP TABLE views;
ALTER TABLE items ADD COLUMN task TEXT DEFAULT '' NOT NULL;
CREATE INDEX items_by_task ON items (run_id, task);
CREATE INDEX items_by_content ON items (run_id, content);
