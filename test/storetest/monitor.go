package storetest

import (
	"bufio"
	"crypto/sha1" // it is how Redis names scripts
	"encoding/hex"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// Command is what MONITOR reports of one.
type Command struct {
	Words []string
	// Lua: a script ran it.
	Lua bool
}

// ClientCommands runs do and returns the commands that clients sent meanwhile.
func ClientCommands(t *testing.T, server *redistest.Server, do func()) []string {
	t.Helper()
	var names []string
	for _, command := range Monitored(t, server, do) {
		if name := strings.ToLower(command.Words[0]); !command.Lua && name != "hello" {
			names = append(names, name)
		}
	}
	return names
}

// Monitored runs do and returns what the server did meanwhile.
func Monitored(t *testing.T, server *redistest.Server, do func()) []Command {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(Timeout))
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20) // a script with its source is one line
	if !lines.Scan() || lines.Text() != "+OK" {
		t.Fatalf("MONITOR: %s", lines.Text())
	}

	do()

	// ECHO marks the end, sent last and from another connection.
	const end = "the end of this test"
	if err := Inspect(t, server).Echo(t.Context(), end).Err(); err != nil {
		t.Fatal(err)
	}
	var commands []Command
	for lines.Scan() {
		source, rest, _ := strings.Cut(lines.Text(), "] ")
		if strings.Contains(rest, end) {
			return commands
		}
		seen := Command{Lua: strings.HasSuffix(source, " lua")}
		for rest != "" {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				t.Fatal(err)
			}
			word, err := strconv.Unquote(quoted)
			if err != nil {
				t.Fatal(err)
			}
			seen.Words, rest = append(seen.Words, word), strings.TrimPrefix(rest[len(quoted):], " ")
		}
		commands = append(commands, seen)
	}
	t.Fatal("MONITOR ended early")
	return nil
}

// Every command a script runs reads, or writes the key that follows its name.
var (
	reading = strings.Fields("time get mget exists type hget hmget hgetall lrange zcard zcount zlexcount zrange zrangebyscore zrangebylex zrevrange zrevrangebyscore zscore xlen xrange xrevrange")
	// A message is no key; its channel is in the slot of the keys.
	publishing = strings.Fields("publish spublish")
	writing    = strings.Fields("set del hset hdel hincrby pexpire rpush ltrim zadd zincrby zrem zremrangebyscore zpopmin zinterstore xadd xdel xtrim")
)

// CheckDeclared runs do and compares what each script writes with the keys it declares. All scripts of the test's package must be run. The pages must
// have their keys and commands.
//
// A Redis Cluster that is moving a slot rejects a script before its first write if one of its KEYS is not there. A key that is
// written without being declared is created a second time on the other server instead, and the move then drops one of the two.
func CheckDeclared(t *testing.T, server *redistest.Server, do func()) {
	t.Helper()
	files, err := filepath.Glob("*.lua") // a test runs in its package
	Must(t, err)
	unseen := map[string]bool{}
	for _, file := range files {
		unseen[strings.TrimSuffix(file, ".lua")] = true
	}
	Must(t, Inspect(t, server).ScriptFlush(t.Context()).Err()) // so that each source is seen once
	rights, kinds := DocumentedRights(t), documentedKinds(t)
	operations := map[string]string{} // by the digest of the script
	var operation string
	var keys []string
	for _, command := range Monitored(t, server, do) {
		name, rest := strings.ToLower(command.Words[0]), command.Words[1:]
		switch {
		case !command.Lua && (name == "eval" || name == "evalsha"):
			sha := rest[0]
			if name == "eval" {
				sum := sha1.Sum([]byte(rest[0]))
				sha = hex.EncodeToString(sum[:])
				head, _, _ := strings.Cut(rest[0], "\n")
				operations[sha] = strings.TrimPrefix(head, "-- ")
			}
			n, err := strconv.Atoi(rest[1])
			Must(t, err)
			operation, keys = operations[sha], rest[2:2+n]
			delete(unseen, operation)
			checkKeys(t, operation, keys, kinds)
		case command.Lua && !rights.allow(name) && !slices.Contains(publishing, name):
			t.Errorf("%s runs %s, and docs/install.md does not give it to the user of Redis", operation, name)
		case !command.Lua || slices.Contains(reading, name) || slices.Contains(publishing, name):
		case !slices.Contains(writing, name):
			t.Errorf("%s runs %s: say whether that writes", operation, name)
		case !slices.Contains(keys, rest[0]):
			t.Errorf("%s writes %s (%s), and declares %v", operation, rest[0], name, keys)
		}
	}
	for operation := range unseen {
		t.Errorf("%s was not run", operation)
	}
}

func checkKeys(t *testing.T, operation string, keys, kinds []string) {
	t.Helper()
	for _, key := range keys {
		if !strings.HasPrefix(key, "{b") || strings.HasSuffix(key, ":") {
			t.Errorf("%s declares %q, which is no key", operation, key)
		}
		if !slices.Contains(kinds, keyKind(key)) {
			t.Errorf("%s declares %s, which is in no table of docs/design", operation, key)
		}
	}
}
