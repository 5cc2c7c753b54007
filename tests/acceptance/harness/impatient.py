"""The worker's app on a broker that gives tasks to somebody else after two seconds."""

from roundelay_worker.taskqueue.app import app

app.conf.broker_transport_options = {
    **app.conf.broker_transport_options,
    "visibility_timeout": 2,
    "unacked_restore_interval": 1,
    "unacked_restore_throttle": 1,
}
