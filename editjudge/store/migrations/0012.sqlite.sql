-- Claims expire by the clock of the owner's machine, too.
ALTER TABLE claims ADD COLUMN until_here DOUBLE;
