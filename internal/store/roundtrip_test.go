package store_test

import (
	"bufio"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// command is what MONITOR tells of one.
type command struct {
	words []string
	// lua: a script ran it.
	lua bool
}

// clientCommands runs do and returns the commands that clients sent meanwhile.
func clientCommands(t *testing.T, server *redistest.Server, do func()) []string {
	t.Helper()
	var names []string
	for _, command := range monitored(t, server, do) {
		if name := strings.ToLower(command.words[0]); !command.lua && name != "hello" {
			names = append(names, name)
		}
	}
	return names
}

// monitored runs do and returns what the server did meanwhile.
func monitored(t *testing.T, server *redistest.Server, do func()) []command {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
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
	if err := client(t, server).Echo(t.Context(), end).Err(); err != nil {
		t.Fatal(err)
	}
	var commands []command
	for lines.Scan() {
		source, rest, _ := strings.Cut(lines.Text(), "] ")
		if strings.Contains(rest, end) {
			return commands
		}
		seen := command{lua: strings.HasSuffix(source, " lua")}
		for rest != "" {
			quoted, err := strconv.QuotedPrefix(rest)
			must(t, err)
			word, err := strconv.Unquote(quoted)
			must(t, err)
			seen.words, rest = append(seen.words, word), strings.TrimPrefix(rest[len(quoted):], " ")
		}
		commands = append(commands, seen)
	}
	t.Fatal("MONITOR ended early")
	return nil
}

func TestEveryOperationIsOneCommand(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL(), func(o *store.Options) { o.PoolSize = 1 })
	asks := merchant()
	wanted := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
	id := mustCreate(t, s, asks, wanted).Session.ID
	cancelled := mustCreate(t, s, asks, newSession()).Session.ID
	generation := int64(1)

	all := map[string]func(context.Context) error{
		"admit":           func(ctx context.Context) error { _, err := s.Admit(ctx, asks); return err },
		"create":          func(ctx context.Context) error { _, _, err := s.CreateSession(ctx, asks, newSession()); return err },
		"replayed create": func(ctx context.Context) error { _, _, err := s.CreateSession(ctx, asks, wanted); return err },
		"merchant's read": func(ctx context.Context) error { _, _, err := s.Session(ctx, asks, id); return err },
		"public read":     func(ctx context.Context) error { _, _, err := s.PublicSession(ctx, payer(), id); return err },
		"cancel": func(ctx context.Context) error { // the first one cancels, the others find it done
			_, _, err := s.Cancel(ctx, asks, cancelled)
			return err
		},
		"settle": func(ctx context.Context) error { // the first one ends it, the others are of money after the end
			_, err := s.Settle(ctx, id, paid(newID()))
			return err
		},
		"create and tell": func(ctx context.Context) error {
			_, _, err := s.CreateSession(ctx, asks, with(newSession(), func(n *store.NewSession) { n.TellCreated = true }))
			return err
		},
		"sweep of nothing": func(ctx context.Context) error { _, err := s.Sweep(ctx, id.Bucket(), 10); return err },
		"record a rotation": func(ctx context.Context) error {
			generation++
			_, err := s.RecordRotation(ctx, rotationOf(asks, generation), rotatedAt)
			return err
		},
		"write an override": func(ctx context.Context) error {
			return s.WriteOverride(ctx, store.Override{KeyRef: store.KeyRef{MerchantID: asks.MerchantID, KeyID: asks.KeyID}, Order: published.Order{Revision: 1}, Accepted: []store.Accepted{{Digest: asks.Digest}}})
		},
	}
	for name, operation := range all {
		if err := operation(t.Context()); err != nil { // the server gets to know the script
			t.Fatalf("%s: %v", name, err)
		}
		commands := clientCommands(t, server, func() {
			for range 3 {
				if err := operation(t.Context()); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
		})
		if want := []string{"evalsha", "evalsha", "evalsha"}; !slices.Equal(commands, want) {
			t.Errorf("%s, three times: %v, want %v", name, commands, want)
		}
	}
}

func TestAServerThatForgotItsScriptsIsTaughtAgain(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL(), func(o *store.Options) { o.PoolSize = 1 })
	asks := merchant()
	mustCreate(t, s, asks, newSession())
	c := client(t, server)
	commands := clientCommands(t, server, func() {
		if err := c.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		mustCreate(t, s, asks, newSession())
		mustCreate(t, s, asks, newSession())
	})
	if want := []string{"script", "evalsha", "eval", "evalsha"}; !slices.Equal(commands, want) {
		t.Errorf("%v, want %v", commands, want)
	}
	if n := len(c.Keys(t.Context(), "*:session:*").Val()); n != 3 {
		t.Errorf("3 creates left %d sessions", n)
	}
}
