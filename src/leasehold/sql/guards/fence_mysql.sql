-- Every write to {table_text} must carry a fence, whatever program it comes from. MySQL 8, MariaDB 10.6 or newer; InnoDB.
--
-- A row is protected by the lock {lock_text} of the namespace {namespace_text}. A program carries a fence if it called
-- leasehold.sql.guard(tx, lease) first in its transaction, or, in any other program, executed
--     SET @leasehold_fence = 1794724016973247;
-- before its write. Such a number is for one lock, and is used up by the first write: set it in each transaction.
-- A fence lower than one that was seen before is refused, with the code LH001. A write without a fence is {unfenced}.
--
-- Nothing in MySQL ends with the transaction that a trigger could read. So this is what it means to carry a fence: this
-- session was the last to pass for the row's lock, and no other has passed since. TRUNCATE and the cascades of foreign
-- keys fire no triggers.
{end}
{guard_table}
{end}
DROP PROCEDURE IF EXISTS {guard_home}leasehold_check_fence
{end}
CREATE PROCEDURE {guard_home}leasehold_check_fence(IN wanted LONGBLOB, IN strict BOOLEAN)
  SQL SECURITY DEFINER MODIFIES SQL DATA
check_fence: BEGIN
  DECLARE given LONGBLOB DEFAULT CAST(@leasehold_fence AS BINARY);
  DECLARE here VARBINARY(32) DEFAULT CAST(@leasehold_session AS BINARY);
  DECLARE carried, highest, readers BIGINT;
  DECLARE message TEXT CHARACTER SET utf8mb4 DEFAULT CONVERT(wanted USING utf8mb4);
  IF given IS NULL THEN
    IF here IS NOT NULL THEN
      UPDATE leasehold_guard SET passes = passes + 1
        WHERE resource = wanted AND session = here AND exclusive_fence > shared_fence;
      IF ROW_COUNT() > 0 THEN
        LEAVE check_fence;
      END IF;
    END IF;
    IF NOT strict THEN
      LEAVE check_fence;
    END IF;
    SET message = LEFT(CONCAT('leasehold LH002: this write carries no fence; call guard(tx, lease) first: ', message), 128);
    SIGNAL SQLSTATE 'LH002' SET MESSAGE_TEXT = message;
  END IF;
  IF given NOT REGEXP '^[0-9]{{1,16}}$' OR CAST(given AS UNSIGNED) NOT BETWEEN 1 AND 9007199254740991 THEN
    SIGNAL SQLSTATE 'LH002' SET MESSAGE_TEXT = 'leasehold LH002: @leasehold_fence is not a fence';
  END IF;
  IF LENGTH(wanted) NOT BETWEEN 1 AND 1024 THEN
    SIGNAL SQLSTATE 'LH002' SET MESSAGE_TEXT = 'leasehold LH002: the name of this lock has no or more than 1024 bytes';
  END IF;
  SET carried = CAST(given AS UNSIGNED);
  IF here IS NULL THEN
    SET here = REPLACE(UUID(), '-', '');
    SET @leasehold_session = here;
  END IF;
  INSERT INTO leasehold_guard (resource, exclusive_fence, shared_fence, passes, session)
    VALUES (wanted, carried, 0, 1, here)
    ON DUPLICATE KEY UPDATE
      session = IF(carried >= exclusive_fence AND carried > shared_fence, here, session),
      passes = passes + IF(carried >= exclusive_fence AND carried > shared_fence, 1, 0),
      exclusive_grant = IF(carried > exclusive_fence AND carried > shared_fence, NULL, exclusive_grant),
      exclusive_fence = IF(carried >= exclusive_fence AND carried > shared_fence, carried, exclusive_fence);
  SELECT exclusive_fence, shared_fence INTO highest, readers FROM leasehold_guard WHERE resource = wanted FOR UPDATE;
  IF carried < highest OR carried <= readers THEN
    SET message = LEFT(CONCAT('leasehold LH001: stale fence ', carried, ', has seen ', GREATEST(highest, readers), ': ', message), 128);
    SIGNAL SQLSTATE 'LH001' SET MESSAGE_TEXT = message;
  END IF;
  SET @leasehold_fence = NULL;
END
{end}
DROP PROCEDURE IF EXISTS {guard_home}leasehold_check_write
{end}
CREATE PROCEDURE {guard_home}leasehold_check_write(IN was LONGBLOB, IN will LONGBLOB, IN strict BOOLEAN)
  SQL SECURITY DEFINER MODIFIES SQL DATA
BEGIN
  IF was IS NOT NULL THEN
    CALL leasehold_check_fence(was, strict);
  END IF;
  IF will IS NOT NULL AND NOT will <=> was THEN
    CALL leasehold_check_fence(will, strict);
  END IF;
END
{end}
DROP TRIGGER IF EXISTS {home}{insert_trigger}
{end}
CREATE TRIGGER {home}{insert_trigger} AFTER INSERT ON {table} FOR EACH ROW
  CALL {guard_home}leasehold_check_write(NULL, {new_resource}, {strict})
{end}
DROP TRIGGER IF EXISTS {home}{update_trigger}
{end}
CREATE TRIGGER {home}{update_trigger} AFTER UPDATE ON {table} FOR EACH ROW
  CALL {guard_home}leasehold_check_write({old_resource}, {new_resource}, {strict})
{end}
DROP TRIGGER IF EXISTS {home}{delete_trigger}
{end}
CREATE TRIGGER {home}{delete_trigger} AFTER DELETE ON {table} FOR EACH ROW
  CALL {guard_home}leasehold_check_write({old_resource}, NULL, {strict})
