"""Who answers: vision-language models over HTTP, recorded replies, and the embedded judge."""
