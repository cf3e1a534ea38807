-- insert_one: insert the record of a key that has none.
INSERT INTO {schema}onceward_records ({columns}) VALUES ({every_value}) ON CONFLICT (id) DO NOTHING RETURNING id
