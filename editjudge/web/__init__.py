"""Browser pages to review verdicts, compare runs and rate edits. Requires the extra `web`.

site            Site            the store, the tokens, and the routes that plug-ins add
app             create          the application: routes of the modules below, and the guard around them
guard           Guard           checks before every route: headers, token, same-origin posts, sizes
connections     Connection      limits of connections
review          routes          list of runs, table of a run, page of an edit
rating          routes          rating of edits by people, with the questions of the rubrics
questionnaire   Questionnaire   the questions of a study, its controls and the agreement of its raters
images          blind           images for reviewers and, without metadata, for raters
"""
