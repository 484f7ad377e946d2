-- Contradictions are computed when somebody looks.
DROP TABLE IF EXISTS checks;
DROP TABLE IF EXISTS contradictions;
