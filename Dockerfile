# One image for the five example services: docker build -t onceward-examples .
# Run one of them:  docker run -e PORT=8080 -e BROKERS=token=north -p 8080:8080 onceward-examples submissions serve
FROM python:3.13-slim

# An unprivileged user, and a folder that it may write to (SQLite files; mount a volume there, or use PostgreSQL).
RUN useradd --create-home --uid 10001 app && mkdir /data && chown app /data

WORKDIR /app
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
COPY examples ./examples
RUN pip install --no-cache-dir --constraint constraints.txt \
        '.[demo,serve,postgres,redis,rabbitmq,nats,sqs,pubsub,firestore,bigquery,objects,oidc]' 'psycopg[binary]'

USER 10001
ENV HOST=0.0.0.0 PORT=8080 PYTHONUNBUFFERED=1 PYTHONPATH=/app
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["python", "-m", "examples.service"]
