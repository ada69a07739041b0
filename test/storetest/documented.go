package storetest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// Rights are ACL rules of Redis, as docs/install.md has them.
type Rights []string

var userLine = regexp.MustCompile(`(?s)ACL SETUSER merchant-operator on '>PASSWORD' (.*?[^\\])\n`)

// DocumentedRights are those of the user of all roles.
func DocumentedRights(t testing.TB) Rights {
	t.Helper()
	return documentedRights(t)[0]
}

// SentinelRights are those of the user at the Sentinels.
func SentinelRights(t testing.TB) Rights {
	t.Helper()
	return documentedRights(t)[1]
}

func documentedRights(t testing.TB) (users []Rights) {
	t.Helper()
	for _, found := range userLine.FindAllStringSubmatch(repository.Read(t, "docs", "install.md"), -1) {
		users = append(users, strings.Fields(strings.NewReplacer("\\", " ", "'", "").Replace(found[1])))
	}
	if len(users) != 2 {
		t.Fatalf("docs/install.md has %d lines for users of Redis; want that of the roles, and that at the Sentinels", len(users))
	}
	return users
}

// User creates a user with these rights and returns its name and password as in a URL.
func (r Rights) User(t testing.TB, server goredis.UniversalClient) string {
	t.Helper()
	arguments := []any{"ACL", "SETUSER", "merchant-operator", "on", ">secret"}
	for _, rule := range r {
		arguments = append(arguments, rule)
	}
	if err := server.Do(t.Context(), arguments...).Err(); err != nil {
		t.Fatal(err)
	}
	return "merchant-operator:secret"
}

// UserURL is the URL of the server for the user of all roles.
func UserURL(t testing.TB, server *redistest.Server) string {
	t.Helper()
	return "redis://" + DocumentedRights(t).User(t, Inspect(t, server)) + "@" + server.Addr() + "/0"
}

// allow reports whether a user may run the command.
func (r Rights) allow(command string) bool { return slices.Contains(r, "+"+command) }

// documentedKinds are the kinds of keys that the pages have, with a colon if a name follows.
func documentedKinds(t *testing.T) []string {
	t.Helper()
	var kinds []string
	for _, page := range []string{"redis", "webhooks"} {
		for _, key := range regexp.MustCompile("`{bXXy}:([a-z]+:?)").FindAllStringSubmatch(repository.Read(t, "docs/design/"+page+".md"), -1) {
			kinds = append(kinds, key[1])
		}
	}
	return kinds
}

// keyKind returns the kind of a key.
func keyKind(key string) string {
	_, name, _ := strings.Cut(key, ":")
	kind, _, named := strings.Cut(name, ":")
	if named {
		return kind + ":"
	}
	return kind
}
