-- People choose between two outputs.
ALTER TABLE ratings ADD COLUMN choice TEXT;
ALTER TABLE answers ADD COLUMN choice TEXT;
