// What Go's usual driver does with a server: one line of JSON for each thing, and whether it worked.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"time"

	_ "github.com/go-sql-driver/mysql"
)

type outcome struct {
	Did   string `json:"did"`
	Error string `json:"error"`
}

func step(did string, work func() error) {
	text := ""
	if err := work(); err != nil {
		text = err.Error()
	}
	line, _ := json.Marshal(outcome{did, text})
	fmt.Println(string(line))
}

func same(what string, got, want any) error {
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("%s is %v, not %v", what, got, want)
	}
	return nil
}

func main() {
	// database/sql prepares every statement with arguments; with interpolation it writes them into the text.
	for _, mode := range []string{"prepared", "interpolated"} {
		options := "?parseTime=true&multiStatements=true&timeout=10s&readTimeout=30s"
		if mode == "interpolated" {
			options += "&interpolateParams=true"
		}
		db, err := sql.Open("mysql", "root@tcp("+os.Args[1]+")/"+options)
		if err != nil {
			panic(err)
		}
		run(db, mode)
		db.Close()
	}
}

func run(db *sql.DB, mode string) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	name := "go_" + mode
	step("DDL, "+mode, func() error {
		_, err := db.ExecContext(ctx, "DROP DATABASE IF EXISTS "+name+"; CREATE DATABASE "+name+
			"; CREATE TABLE "+name+".t (id BIGINT PRIMARY KEY AUTO_INCREMENT, s VARCHAR(20), d DECIMAL(10,2), at DATETIME(6), x DOUBLE)")
		return err
	})
	at := time.Date(2024, 2, 29, 1, 2, 3, 4000, time.UTC)
	step("insert and read back, "+mode, func() error {
		done, err := db.ExecContext(ctx, "INSERT INTO "+name+".t (s, d, at, x) VALUES (?, ?, ?, ?), (?, ?, ?, ?)",
			"naïve ☃", "1.50", at, 0.25, nil, nil, nil, nil)
		if err != nil {
			return err
		}
		if count, _ := done.RowsAffected(); count != 2 {
			return fmt.Errorf("%d rows", count)
		}
		var s, d string
		var x float64
		var read time.Time
		row := db.QueryRowContext(ctx, "SELECT s, d, at, x FROM "+name+".t WHERE s = ?", "naïve ☃")
		if err := row.Scan(&s, &d, &read, &x); err != nil {
			return err
		}
		return same("the row", []any{s, d, read, x}, []any{"naïve ☃", "1.50", at, 0.25})
	})
	step("transactions, "+mode, func() error {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM "+name+".t WHERE id > ?", 0); err != nil {
			return err
		}
		if err := tx.Rollback(); err != nil {
			return err
		}
		var count int
		if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+name+".t").Scan(&count); err != nil {
			return err
		}
		return same("the count", count, 2)
	})
	step("several results, "+mode, func() error {
		rows, err := db.QueryContext(ctx, "SELECT 1; SELECT 2")
		if err != nil {
			return err
		}
		defer rows.Close()
		if !rows.Next() || !rows.NextResultSet() || !rows.Next() {
			return fmt.Errorf("no second result: %v", rows.Err())
		}
		var second int
		if err := rows.Scan(&second); err != nil {
			return err
		}
		return same("the second", second, 2)
	})
	step("column types, "+mode, func() error {
		rows, err := db.QueryContext(ctx, "SELECT id, s, d, at, x FROM "+name+".t LIMIT 0")
		if err != nil {
			return err
		}
		defer rows.Close()
		kinds, err := rows.ColumnTypes()
		if err != nil {
			return err
		}
		names := []string{}
		for _, kind := range kinds {
			names = append(names, kind.DatabaseTypeName())
		}
		return same("the types", names, []string{"BIGINT", "VARCHAR", "DECIMAL", "DATETIME", "DOUBLE"})
	})
	step("cancel a query, "+mode, func() error {
		short, stop := context.WithTimeout(ctx, 200*time.Millisecond)
		defer stop()
		if _, err := db.ExecContext(short, "SELECT SLEEP(20)"); err == nil {
			return fmt.Errorf("it was not cancelled")
		}
		return db.PingContext(ctx)
	})
}
