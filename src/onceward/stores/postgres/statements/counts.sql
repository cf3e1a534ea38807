-- counts: how many records each scope has in each state.
SELECT scope, state, count(*) FROM {schema}onceward_records GROUP BY scope, state
