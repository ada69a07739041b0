package storetest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/repository"
)

// Rights are the ACL rules that docs/design/redis.md has for the users of Redis.
type Rights struct{ API, Dispatcher []string }

var rightsText = regexp.MustCompile(`(?s)A user needs(.*?), and of channels.*?A dispatcher also needs(.*?)\.\n`)

// DocumentedRights reads them from the page.
func DocumentedRights(t testing.TB) Rights {
	t.Helper()
	found := rightsText.FindStringSubmatch(repository.Read(t, "docs/design/redis.md"))
	if found == nil {
		t.Fatal("docs/design/redis.md does not say what a user needs")
	}
	rules := regexp.MustCompile(`[+~][a-z{*]+`)
	return Rights{API: rules.FindAllString(found[1], -1), Dispatcher: rules.FindAllString(found[2], -1)}
}

// allow reports whether an API's or a dispatcher's user may run the command.
func (r Rights) allow(command string) bool {
	return slices.Contains(r.API, "+"+command) || slices.Contains(r.Dispatcher, "+"+command)
}

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
