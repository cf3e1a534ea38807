-- counts: the number of records by scope and state.
SELECT scope, state, count(*) FROM {schema}onceward_records GROUP BY scope, state
