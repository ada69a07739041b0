package apiserver_test

import (
	"flag"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/blocked"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func permitted(permissions ...v1alpha1.Permission) func(*published.KeyRecord) {
	return func(r *published.KeyRecord) { r.Permissions = permissions }
}

// without returns all permissions but one.
func without(one v1alpha1.Permission) []v1alpha1.Permission {
	return slices.DeleteFunc(v1alpha1.Permissions(), func(p v1alpha1.Permission) bool { return p == one })
}

// change publishes a key with a change.
func (f *fixture) change(key string, change func(*published.KeyRecord)) {
	f.t.Helper()
	f.putBack(f.keySecret(key), func(r *published.KeyRecord) {
		change(r)
		r.Revision = r.NextRevision(time.Now())
	})
}

// narrow publishes a key with other permissions.
func (f *fixture) narrow(key string, permissions ...v1alpha1.Permission) {
	f.t.Helper()
	f.change(key, permitted(permissions...))
}

func (r *replica) wantForbidden(t *testing.T, got result, missing v1alpha1.Permission) {
	t.Helper()
	got.wantError(t, http.StatusForbidden, "the API key does not have the permission "+string(missing))
	if code := got.header.Get("Error-Code"); code != "permission_missing" {
		t.Errorf("Error-Code %q", code)
	}
	if got.header.Get("RateLimit") != "" {
		t.Error("it has the header RateLimit, as if it was charged")
	}
}

// Each operation of the document is asked by a key with only the permission that the document names, by one with all but that, and by one
// without any. What the document says is what the service does.
func TestPermissions_EachOperation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.merchant("acme")
	admin, testAdmin := f.key("admin", acme), f.testKey("test-admin", acme)
	r := f.start()
	live := r.call(http.MethodPost, sessions, admin, `{"amountCents": 1}`).want(t, http.StatusCreated).text("sessionId")
	test := r.call(http.MethodPost, sessions, testAdmin, `{"amountCents": 1}`).want(t, http.StatusCreated).text("sessionId")
	paid := r.call(http.MethodPost, sessions, admin, `{"amountCents": 1}`).want(t, http.StatusCreated).text("sessionId")
	r.report(paid, f.rail("bank"), report("bank-1", "COMPLETED", 1)).want(t, http.StatusOK)

	// What an operation is asked: where it takes a permission for one query and another for others, one for each.
	type request struct{ query, body, id string }
	requests := map[string]map[v1alpha1.Permission]request{
		"createSession":     {"create": {body: `{"amountCents": 1}`}},
		"listSessions":      {"read": {query: "?orderRef=1001"}, "list": {query: "?endedFrom=1600000000000"}},
		"getSession":        {"read": {id: live}},
		"cancelSession":     {"cancel": {id: live}},
		"settleTestSession": {"create": {id: test}},
		"listEvents":        {"list": {}},
		"getMerchant":       {"read": {}},
		"rotateKey":         {"rotate": {}},
		"requestRefund":     {"refund": {body: `{}`, id: paid}},
	}
	document, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	for path, item := range document.Paths.Map() {
		for method, operation := range item.Operations() {
			if operation.Security != nil && len(*operation.Security) == 0 {
				continue // without a key
			}
			permissions, ok := operation.Extensions["x-permissions"].([]any)
			if !ok {
				t.Errorf("%s names no permission", operation.OperationID)
				continue
			}
			for _, word := range permissions {
				needs := v1alpha1.Permission(word.(string))
				asked, known := requests[operation.OperationID][needs]
				if !known || !slices.Contains(v1alpha1.Permissions(), needs) {
					t.Errorf("%s with the permission %s is not in this test", operation.OperationID, needs)
					continue
				}
				t.Run(operation.OperationID+"/"+string(needs), func(t *testing.T) {
					publish := f.key
					if asked.id == test {
						publish = f.testKey
					}
					name := strings.ToLower(operation.OperationID) + "-" + string(needs)
					only := publish(name+"-only", acme, permitted(needs))
					lacking := publish(name+"-lacking", acme, permitted(without(needs)...))
					none := publish(name+"-none", acme, permitted("everything", "*", "Create", ""))
					call := func(key string) result {
						return r.call(method, strings.ReplaceAll(path, "{sessionId}", asked.id)+asked.query, key, asked.body, "Idempotency-Key", "once")
					}
					eventually(t, "the replica knows the last key", func() bool { return call(none).status != http.StatusUnauthorized })
					r.wantForbidden(t, call(lacking), needs)
					r.wantForbidden(t, call(none), needs)
					if got := call(only); got.status >= http.StatusBadRequest {
						t.Errorf("with the permission: %d %s", got.status, got.raw)
					}
				})
				tested++
			}
		}
	}
	if documented := len(requests) + 1; tested != documented {
		t.Errorf("%d of %d requests were made", tested, documented)
	}
}

// writePage writes the table of docs/apikey.md anew.
var writePage = flag.Bool("page", false, "write the table of docs/apikey.md from openapi.yaml")

// The page has the permissions of each request as the document has them.
func TestPermissions_Page(t *testing.T) {
	document, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for path, item := range document.Paths.Map() {
		for method, operation := range item.Operations() {
			words, _ := operation.Extensions["x-permissions"].([]any)
			if len(words) == 0 {
				continue
			}
			var needs []string
			for _, word := range words {
				needs = append(needs, fmt.Sprintf("`%s`", word))
			}
			rows = append(rows, fmt.Sprintf("| `%s %s` | %s |\n", method, path, strings.Join(needs, " or ")))
		}
	}
	slices.SortFunc(rows, func(a, b string) int { return strings.Compare(strings.Fields(a)[2]+a, strings.Fields(b)[2]+b) })
	table := "| Request | Needs |\n|---|---|\n" + strings.Join(rows, "")
	const name, begin, end = "../docs/apikey.md", "<!-- from openapi.yaml -->\n\n", "\n<!-- end -->\n"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	have, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the table", name)
	}
	if *writePage {
		if err := os.WriteFile(name, []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(table, have); diff != "" {
		t.Errorf("run go test ./apiserver -run TestPermissions_Page -args -page (-want +got):\n%s", diff)
	}
}

// A request that is wrong in several ways is refused for the first of: key, merchant, permission, limit, request. A refused one is not charged.
func TestPermissions_ErrorOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	once := func(r *published.MerchantRecord) { r.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 1} }
	acme := f.merchant("acme", once)
	reader := f.key("reader", acme, permitted(v1alpha1.PermissionRead))
	suspended := f.key("of-suspended", f.merchant("suspended", func(r *published.MerchantRecord) { r.State = v1alpha1.MerchantSuspended }),
		permitted(v1alpha1.PermissionRead))
	replaced := f.newKey(published.ID("replaced"))
	f.key("dead", acme, permitted(v1alpha1.PermissionRead), func(r *published.KeyRecord) {
		r.Previous = []published.Previous{{Digest: replaced.Digest(), ValidUntil: time.Now().Add(-time.Hour)}}
	})
	expired := f.key("expired", acme, permitted(v1alpha1.PermissionRead), func(r *published.KeyRecord) { r.ExpiresAt = new(time.Now().Add(-time.Hour)) })
	r := f.start()
	for name, call := range map[string]func(key string) result{
		"a charge":              func(key string) result { return r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`) },
		"a bad charge":          func(key string) result { return r.call(http.MethodPost, sessions, key, `{"amountCents": 0}`) },
		"no JSON":               func(key string) result { return r.call(http.MethodPost, sessions, key, `{`) },
		"cancel of no session":  func(key string) result { return r.call(http.MethodPost, sessions+"/x/cancel", key, "") },
		"a list of nothing":     func(key string) result { return r.call(http.MethodGet, sessions, key, "") },
		"a malformed list":      func(key string) result { return r.call(http.MethodGet, sessions+"?endedFrom=%zz", key, "") },
		"events of no cursor":   func(key string) result { return r.call(http.MethodGet, events+"?after=x", key, "") },
		"a wait for events":     func(key string) result { return r.call(http.MethodGet, events+"?wait=25", key, "") },
		"a rotation of the key": func(key string) result { return r.call(http.MethodPost, rotate, key, "") },
	} {
		t.Run(name, func(t *testing.T) {
			call(expired).want(t, http.StatusUnauthorized)
			call(f.newKey(published.ID("nobody")).Reveal()).want(t, http.StatusUnauthorized)
			call(suspended).wantError(t, http.StatusForbidden, "merchant is not active")
			for range 3 { // more than the burst
				if got := call(reader); got.header.Get("Error-Code") != "permission_missing" {
					t.Fatalf("%d %s", got.status, got.raw)
				}
			}
		})
	}
	// The burst of one is left.
	r.call(http.MethodGet, me, reader, "").want(t, http.StatusOK)
	r.wantForbidden(t, r.call(http.MethodPost, sessions, reader, `{"amountCents": 1}`), v1alpha1.PermissionCreate)
}

// A key that was just rotated is dead before it lacks anything, also on a replica that does not know.
func TestPermissions_DeadKeyGets401First(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"), permitted(v1alpha1.PermissionRotate))
	r, frozen := f.start(), f.start()
	frozen.proxy.FreezeWatches()
	next := f.rotated(r, key)
	for _, replica := range []*replica{r, frozen} {
		replica.call(http.MethodPost, sessions, key, charge1250).want(t, http.StatusUnauthorized)
		replica.wantForbidden(t, replica.call(http.MethodPost, sessions, next, charge1250), v1alpha1.PermissionCreate)
	}
}

// Narrowing is in force once a replica's watch has it: one whose watch is frozen goes on with what it knew, as for a suspension.
func TestPermissions_Narrowed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r, frozen := f.start(), f.start()
	frozen.proxy.FreezeWatches()
	f.narrow(key, v1alpha1.PermissionRead)
	charge := func(r *replica) int { return r.call(http.MethodPost, sessions, key, charge1250).status }
	eventually(t, "the replica has seen it", func() bool { return charge(r) == http.StatusForbidden })
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
	if status := charge(frozen); status != http.StatusCreated {
		t.Errorf("the frozen replica answers %d", status)
	}
	frozen.proxy.ThawWatches()
	eventually(t, "the other replica has seen it, too", func() bool { return charge(frozen) == http.StatusForbidden })

	f.narrow(key) // nil: everything
	eventually(t, "it is widened", func() bool { return charge(r) == http.StatusCreated })
}

// A consumer whose key may not list any more gets 403 for its wait.
func TestPermissions_NarrowedDuringAWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.merchant("acme")
	key, other := f.key("consumer", acme), f.key("office", acme)
	r := f.start()
	answer := make(chan result, 1)
	go func() {
		defer close(answer)
		answer <- r.call(http.MethodGet, events+"?wait=25", key, "")
	}()
	eventually(t, "it waits", func() bool { return r.metric("merchant_operator_streams") == "1" })
	f.narrow(key, without(v1alpha1.PermissionList)...)
	eventually(t, "the replica has seen it", func() bool { return r.call(http.MethodGet, events, key, "").status == http.StatusForbidden })
	r.call(http.MethodPost, sessions+"/"+r.create(other)+"/cancel", other, "").want(t, http.StatusOK)
	r.wantForbidden(t, <-answer, v1alpha1.PermissionList)
}

// A rotation over HTTP keeps what the key may do, and from where.
func TestPermissions_RotationKeepsThem(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme, console := f.merchant("acme"), f.issuer("console")
	narrow := func(r *published.KeyRecord) {
		r.Permissions, r.IPAllowlist = []v1alpha1.Permission{"read", "rotate"}, []v1alpha1.IPBlock{"127.0.0.1", "2001:db8::/48"}
	}
	key := f.key("till", acme, narrow)
	r := f.start()
	id, _ := apikey.ParseID(key)
	byItself := f.rotated(r, key)
	byConsole := f.issuedKey(r.issue(id, console, f.rotation(2, 0)).want(t, http.StatusOK))
	var want published.KeyRecord
	narrow(&want)
	record := f.keyRecord(id)
	if diff := cmp.Diff(want, published.KeyRecord{Permissions: record.Permissions, IPAllowlist: record.IPAllowlist}); diff != "" || record.Generation != 3 {
		t.Errorf("generation %d (-want +got):\n%s", record.Generation, diff)
	}
	r.call(http.MethodGet, me, byItself, "").want(t, http.StatusUnauthorized)
	profile := r.call(http.MethodGet, me, byConsole, "").want(t, http.StatusOK).body["apiKey"].(map[string]any)
	if diff := cmp.Diff([]any{"read", "rotate"}, profile["permissions"]); diff != "" {
		t.Errorf("permissions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]any{"127.0.0.1", "2001:db8::/48"}, profile["ipAllowlist"]); diff != "" {
		t.Errorf("ipAllowlist (-want +got):\n%s", diff)
	}
	r.wantForbidden(t, r.call(http.MethodPost, sessions, byConsole, charge1250), v1alpha1.PermissionCreate)
}

// A rotation reads the published record, and so a replica whose watch is frozen knows what it may not do any more: a leaked key whose permission
// was taken away cannot lock its shop out.
func TestPermissions_RotationByAFrozenReplica(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.merchant("acme")
	lacking, elsewhere := f.key("lacking", acme), f.key("elsewhere", acme)
	frozen := f.start()
	frozen.proxy.FreezeWatches()
	f.narrow(lacking, without(v1alpha1.PermissionRotate)...)
	f.change(elsewhere, func(r *published.KeyRecord) { r.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.7"} })
	got := frozen.call(http.MethodPost, rotate, lacking, "")
	got.wantError(t, http.StatusForbidden, "the API key does not have the permission rotate")
	frozen.call(http.MethodPost, rotate, elsewhere, "").want(t, http.StatusUnauthorized)
	for _, key := range []string{lacking, elsewhere} {
		frozen.call(http.MethodGet, me, key, "").want(t, http.StatusOK) // it is the key as before
	}
}

// An address must be on the lists of merchant and key. The merchant's mode is for both, and what either list blocks is counted, by key if
// the merchant's list allows it.
func TestKeyAllowlist(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	list := func(blocks ...v1alpha1.IPBlock) func(*published.KeyRecord) {
		return func(r *published.KeyRecord) { r.IPAllowlist = blocks }
	}
	open := f.merchant("any")
	some := f.merchant("some", func(r *published.MerchantRecord) {
		r.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24", "2001:db8::/48"}
	})
	reporting := f.merchant("reporting", func(r *published.MerchantRecord) { r.IPAllowlistMode = v1alpha1.IPAllowlistReport })
	const in, near, out, six = "203.0.113.7", "203.0.113.8", "198.51.100.7", "2001:db8::7"
	keys := map[string]struct {
		key     string
		allowed []string
	}{
		"no list":                     {f.key("none", open), []string{in, near, out, six}},
		"an empty list":               {f.key("empty", some, list([]v1alpha1.IPBlock{}...)), []string{in, near, six}},
		"the list of the key":         {f.key("one", open, list(in)), []string{in}},
		"both lists":                  {f.key("both", some, list(in)), []string{in}},
		"a wider list than the other": {f.key("wider", some, list("0.0.0.0/0")), []string{in, near}},
		"no address on both lists":    {f.key("neither", some, list(out)), nil},
		"a list that reports":         {f.key("reported", reporting, list(in)), []string{in, near, out, six}},
	}
	unknown := f.newKey(published.ID("nobody")).Reveal()
	r := f.start(trustLoopback)
	refused := r.call(http.MethodGet, me, unknown, "").want(t, http.StatusUnauthorized)
	for name, test := range keys {
		t.Run(name, func(t *testing.T) {
			for _, address := range []string{in, near, out, six} {
				got := r.call(http.MethodGet, me, test.key, "", "X-Forwarded-For", address)
				want := http.StatusUnauthorized
				if slices.Contains(test.allowed, address) {
					want = http.StatusOK
				}
				if got.status != want || want == http.StatusUnauthorized && string(got.raw) != string(refused.raw) {
					t.Errorf("from %s: %d %s, want %d", address, got.status, got.raw, want)
				}
			}
		})
	}
	kept := blocked.New(storetest.Client(t, sharedRedis.URL()))
	for _, test := range []struct {
		merchant published.MerchantRecord
		key      string // whose list has blocked the address; empty: the merchant's
	}{{open, keys["the list of the key"].key}, {some, ""}, {reporting, keys["a list that reports"].key}} {
		merchant, block := test.merchant, "198.51.100.0/24"
		if id, ok := apikey.ParseID(test.key); ok {
			block = allowlist.KeyBlock(netip.MustParseAddr(out), id)
		}
		eventually(t, "blocked addresses of "+merchant.Name+" are counted", func() bool {
			all, _, err := kept.List(t.Context(), session.MerchantBucket(merchant.MerchantID))
			if err != nil {
				t.Error(err)
			}
			for _, addresses := range all {
				for _, counted := range addresses.Blocks {
					if addresses.MerchantID == merchant.MerchantID && counted.Block == block {
						return true
					}
				}
			}
			return false
		})
	}
}
