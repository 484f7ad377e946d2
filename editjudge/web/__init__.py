"""Pages in a browser: review verdicts, compare runs, rate edits. Needs the extra `web`.

site            Site            the store, the tokens, and the routes that plug-ins add
app             create          the application: routes of the modules below, and the guard around them
guard           Guard           headers, token, same-origin posts, sizes: checks before every route
connections     Connection      limits of connections
review          routes          runs, a run's table, an edit's page
rating          routes          people rate with the rubrics' own questions
questionnaire   Questionnaire   the questions of a study, its controls and the agreement of its raters
images          blind           images for reviewers, and without metadata for raters
"""
