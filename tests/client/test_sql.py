"""Enqueueing in the web app's own transaction."""

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from roundelay import InvalidSubmission, Submission
from roundelay.sql import enqueue, outbox_table


@pytest.fixture
def engine():
    engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)
    metadata = sa.MetaData()
    outbox_table(metadata)
    metadata.create_all(engine)
    yield engine
    engine.dispose()


def rows(engine):
    with engine.connect() as connection:
        return connection.execute(sa.select(outbox_table(sa.MetaData()))).all()


def test_a_committed_message_is_a_row_that_holds_the_submission(engine):
    with Session(engine) as session, session.begin():
        message_id = enqueue(session, "hello", conversation_id="c1", tools=["calculator"])

    (row,) = rows(engine)
    submission = Submission.model_validate_json(row.submission)
    assert (row.message_id, submission.message_id, submission.tools) == (message_id, message_id, ("calculator",))
    assert row.created_at > 1_000_000_000


def test_a_message_that_was_rolled_back_never_was(engine):
    with engine.connect() as connection:
        enqueue(connection, "hello")
        connection.rollback()

    assert rows(engine) == []


def test_a_scoped_session_will_do(engine):
    session = scoped_session(sessionmaker(engine))
    enqueue(session, "hello")
    session.commit()
    session.remove()

    assert len(rows(engine)) == 1


def test_faults_are_found_before_anything_is_written(engine):
    with Session(engine) as session, session.begin(), pytest.raises(InvalidSubmission, match="text"):
        enqueue(session, "", user_id="a b")

    assert rows(engine) == []


def test_the_size_that_a_submission_may_have_is_the_one_that_is_set(engine, monkeypatch):
    monkeypatch.setenv("ROUNDELAY_MAX_MESSAGE_BYTES", "10")
    with Session(engine) as session, session.begin():
        with pytest.raises(InvalidSubmission, match="text: is 11 bytes, more than the limit of 10"):
            enqueue(session, "hello hello")
        enqueue(session, "hello")

    assert len(rows(engine)) == 1


def test_the_table_can_be_part_of_the_apps_own_metadata_twice():
    metadata = sa.MetaData()

    assert outbox_table(metadata) is outbox_table(metadata)
