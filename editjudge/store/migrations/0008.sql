-- Choices and probabilities beside scores; several questions of a rubric about one edit.
ALTER TABLE judgements ADD COLUMN "order" TEXT;
