-- Inserts of single rows into a child of a foreign key, or into the same table without one.

sysbench.cmdline.options = {
  parents = {"rows of the parent", 10000},
  keyed = {"whether the child has its foreign key", true},
}

function prepare()
  local connection = sysbench.sql.driver():connect()
  connection:query("CREATE TABLE parent (id INT PRIMARY KEY, n INT)")
  connection:bulk_insert_init("INSERT INTO parent VALUES")
  for id = 1, sysbench.opt.parents do
    connection:bulk_insert_next(string.format("(%d, %d)", id, id))
  end
  connection:bulk_insert_done()
  local columns = "id INT PRIMARY KEY AUTO_INCREMENT, p INT, pad VARCHAR(60), KEY (p)"
  connection:query("CREATE TABLE loose (" .. columns .. ")")
  connection:query("CREATE TABLE keyed (" .. columns .. ", FOREIGN KEY (p) REFERENCES parent (id))")
end

function thread_init()
  local table_name = sysbench.opt.keyed and "keyed" or "loose"
  db = sysbench.sql.driver():connect()
  insert = db:prepare("INSERT INTO " .. table_name .. " (p, pad) VALUES (?, ?)")
  p = insert:bind_create(sysbench.sql.type.INT)
  pad = insert:bind_create(sysbench.sql.type.VARCHAR, 60)
  insert:bind_param(p, pad)
end

function thread_done()
  insert:close()
  db:disconnect()
end

function event()
  p:set(sysbench.rand.uniform(1, sysbench.opt.parents))
  pad:set(sysbench.rand.string("###########-###########-###########"))
  insert:execute()
end
