"""The browser's side: review verdicts, rate edits, answer training jobs. Needs the extra `web`.

site        Site                what every page and endpoint works with: the store, the default judge, the token
app         create              the application: routes of the modules below, and the guards around them
guard       Guard               headers, token, same-origin posts, sizes: what stands before every route
review      routes              runs, a run's table, an edit's page
rating      routes              people rate with the rubrics' own questions
service     routes              `/v1/judge`, `/v1/reward`, `/healthz`, `/openapi.json`
"""
