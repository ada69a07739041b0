package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

// publisher writes published objects into a namespace of its own, in which no operator repairs them, for a real API replica.
type publisher struct {
	t         *testing.T
	namespace string
	replica   fixture.Replica
}

func newPublisher(t *testing.T) *publisher {
	t.Helper()
	p := &publisher{t: t, namespace: kubetest.Namespace(t, installation.Environment.Config, "credentials-")}
	p.replica, _ = installation.APIServer(t, p.namespace, func(o *apiserver.Options) {
		o.Kubeconfig, o.CredentialsNamespace, o.TrustedProxies, o.LogRefusedKeys = admin, p.namespace, loopback, true
	})
	p.merchant("acme", v1alpha1.MerchantActive)
	p.merchant("fenced", v1alpha1.MerchantActive, "198.51.100.0/24")
	p.merchant("reporting", v1alpha1.MerchantActive, "198.51.100.0/24")
	p.merchant("paused", v1alpha1.MerchantSuspended)
	return p
}

func (p *publisher) create(object client.Object, err error) {
	p.t.Helper()
	if err == nil {
		err = installation.Client.Create(p.t.Context(), object)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func source(name string) published.Source {
	return published.Source{Namespace: "shops", Name: name, UID: types.UID(name)}
}

var modes = map[string]v1alpha1.IPAllowlistMode{"reporting": v1alpha1.IPAllowlistReport}

func (p *publisher) merchant(name string, state v1alpha1.MerchantState, allowlist ...v1alpha1.IPBlock) {
	p.t.Helper()
	record := published.MerchantRecord{
		MerchantID: published.ID(types.UID(name)), Namespace: "shops", Name: name, UID: types.UID(name), DisplayName: name, State: state,
		Currency: v1alpha1.DefaultCurrency, IPAllowlist: allowlist, IPAllowlistMode: modes[name], RateLimit: v1alpha1.RateLimit{RequestsPerSecond: 1000, Burst: 1000},
		Sessions: v1alpha1.SessionSettings{LifetimeSeconds: 900, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
	}
	p.create(published.EncodeMerchant(p.namespace, record))
}

// key publishes a changed record of a new key of the merchant, and returns the plaintext.
func (p *publisher) key(name, merchant string, change ...func(*published.KeyRecord)) (plaintext string) {
	p.t.Helper()
	secret, plaintext := p.newKey(name, merchant, change...)
	p.create(secret, nil)
	return plaintext
}

// newerKey publishes a record of the next version, whose rotation has another shape.
func (p *publisher) newerKey(name, merchant string) (plaintext string) {
	p.t.Helper()
	secret, plaintext := p.newKey(name, merchant)
	later := strings.NewReplacer(`"version":1`, `"version":2`, `"lastRotation":`, `"lastRotation":7,"was":`)
	secret.Data["record.json"] = []byte(later.Replace(string(secret.Data["record.json"])))
	p.create(secret, nil)
	return plaintext
}

// newKey returns a changed record of a new key of the merchant, and the plaintext.
func (p *publisher) newKey(name, merchant string, change ...func(*published.KeyRecord)) (secret *corev1.Secret, plaintext string) {
	p.t.Helper()
	key, err := apikey.New(published.ID(types.UID(name)))
	if err != nil {
		p.t.Fatal(err)
	}
	now := time.Now().UTC()
	record := published.KeyRecord{
		KeyID: key.ID(), MerchantID: published.ID(types.UID(merchant)), Source: source(name), Generation: 1, Revision: now.UnixMilli(),
		Current:      published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: now},
		State:        v1alpha1.ApiKeyActive,
		LastRotation: published.RotationEvent{Time: now, Cause: v1alpha1.RotationInitial},
	}
	for _, c := range change {
		c(&record)
	}
	if secret, err = published.EncodeKey(p.namespace, record); err != nil {
		p.t.Fatal(err)
	}
	return secret, key.Reveal()
}

// external changes a record to that of an externally generated key.
func external(plaintext string) func(*published.KeyRecord) {
	return func(r *published.KeyRecord) {
		r.Current = published.Current{Digest: apikey.NewDigest(plaintext), CreatedAt: r.Current.CreatedAt}
		r.HandledDigest = &r.Current.Digest
	}
}

// rotatedAway replaces the key; the old one is valid for the overlap.
func (p *publisher) rotatedAway(overlap time.Duration, at time.Time) func(*published.KeyRecord) {
	return func(r *published.KeyRecord) {
		next, err := apikey.New(r.KeyID)
		if err != nil {
			p.t.Fatal(err)
		}
		*r = r.Rotated(published.Current{Digest: next.Digest(), Prefix: next.Prefix(), CreatedAt: time.Now().UTC()}, v1alpha1.RotationTrigger, overlap, at)
	}
}

// Every cause is named, and the API agrees: it gives the same reason in its log, or accepts the key.
func TestExplain401_AgreesWithTheAPI(t *testing.T) {
	t.Parallel()
	p := newPublisher(t)
	good := p.key("good", "acme")
	secret := published.KeyName(published.ID("broken"))
	cases := map[string]struct {
		presented, from string
		status          int
		reason          string // of the API
		words           []string
	}{
		"a good key":                  {good, anywhere, 200, "", []string{"ACCEPTED", "shops/good"}},
		"from an address in it":       {p.key("in", "fenced"), "198.51.100.7", 200, "", []string{"ACCEPTED"}},
		"reported only":               {p.key("reported", "reporting"), anywhere, 200, "", []string{"ACCEPTED"}},
		"in its overlap":              {p.key("overlap", "acme", p.rotatedAway(time.Hour, time.Now())), anywhere, 200, "", []string{"ACCEPTED"}},
		"an external key":             {strings.Repeat("x", 40), anywhere, 200, "", []string{"ACCEPTED", "shops/external"}},
		"too short":                   {"short", anywhere, 401, "malformed", []string{"5 characters; every key has at least 32"}},
		"too long":                    {strings.Repeat("l", 300), anywhere, 401, "malformed", []string{"more than 256 characters"}},
		"with a space":                {good[:30] + " " + good[31:], anywhere, 401, "malformed", []string{"has spaces"}},
		"cut":                         {good[:len(good)-1], anywhere, 401, "malformed", []string{"58 characters; a generated key has 59"}},
		"wrong checksum":              {good[:30] + "_" + good[31:], anywhere, 401, "malformed", []string{"checksum", "mistyped"}},
		"never issued":                {newForeignKey(t, "nobody"), anywhere, 401, "unknown", []string{"There is no such key", "never issued in this cluster"}},
		"external, of nobody":         {strings.Repeat("n", 40), anywhere, 401, "unknown", []string{"no ApiKey has its SHA-256"}},
		"external, claimed":           {strings.Repeat("c", 40), anywhere, 401, "unknown", []string{"claimed by the ApiKey shops/claimant"}},
		"replaced":                    {p.key("replaced", "acme", p.rotatedAway(0, time.Now())), anywhere, 401, "rotated", []string{"was replaced", "cause Trigger", "there is no ApiKey replaced in namespace shops"}},
		"overlap over":                {p.key("over", "acme", p.rotatedAway(time.Minute, time.Now().Add(-time.Hour))), anywhere, 401, "rotated", []string{"its overlap ended at"}},
		"not issued":                  {newForeignKey(t, "unissued"), anywhere, 401, "rotated", []string{"Nobody has a key of this ApiKey yet"}},
		"not its key":                 {newForeignKey(t, "good"), anywhere, 401, "rotated", []string{"It is not the key of this ApiKey"}},
		"restored":                    {p.key("restored", "acme", func(r *published.KeyRecord) { r.Superseded = true }), anywhere, 401, "rotated", []string{"restored from a backup"}},
		"disabled":                    {p.key("disabled", "acme", func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled }), anywhere, 401, "disabled", []string{"there is no ApiKey disabled in namespace shops"}},
		"of the other mode":           {p.key("moded", "acme", func(r *published.KeyRecord) { r.Test = true }), anywhere, 401, "wrong_mode", []string{"is of another mode than the ApiKey"}},
		"expired":                     {p.key("expired", "acme", func(r *published.KeyRecord) { r.ExpiresAt = new(time.Now().Add(-time.Hour)) }), anywhere, 401, "expired", []string{"The ApiKey expired at"}},
		"merchant not published":      {p.key("orphan", "nobody"), anywhere, 401, "merchant_missing", []string{"Merchant of the ApiKey is not published", "condition Ready"}},
		"merchant deleted":            {p.key("left", "gone"), anywhere, 401, "merchant_missing", []string{"Merchant of the ApiKey was deleted", "merchant onboard"}},
		"of a newer version":          {p.newerKey("newer", "acme"), anywhere, 503, "", []string{"newer version of the operator", "shops/newer"}},
		"address not allowed":         {p.key("out", "fenced"), anywhere, 401, "address_not_allowed", []string{"not on the allowlist", "198.51.100.0/24", "--trusted-proxies"}},
		"address not on its own list": {p.key("own-list", "acme", func(r *published.KeyRecord) { r.IPAllowlist = []v1alpha1.IPBlock{"198.51.100.0/24"} }), anywhere, 401, "address_not_allowed", []string{"allowlist of the key: 198.51.100.0/24", "spec.ipAllowlist of the ApiKey"}},
		"few permissions":             {p.key("reader", "acme", func(r *published.KeyRecord) { r.Permissions = []v1alpha1.Permission{"read"} }), anywhere, 200, "", []string{"ACCEPTED", "Its permissions are: read; other requests get 403"}},
		"deleted":                     {newForeignKey(t, "deleted"), anywhere, 401, "unknown", []string{"The ApiKey was deleted at", "shops/deleted"}},
		"unreadable":                  {newForeignKey(t, "broken"), anywhere, 401, "unknown", []string{"record of the key cannot be read"}},
		"merchant suspended":          {p.key("paused-till", "paused"), anywhere, 403, "", []string{"is Suspended: its requests get 403"}},
	}
	p.key("external", "acme", external(strings.Repeat("x", 40)))
	p.key("unissued", "acme", func(r *published.KeyRecord) { r.Current = published.Placeholder(r.Current.CreatedAt) })
	p.create(published.EncodeTombstone(p.namespace, published.Tombstone{Kind: published.TombstoneApiKey, ID: published.ID("deleted"), Source: source("deleted"), EndedAt: time.Now()}))
	p.create(published.EncodeTombstone(p.namespace, published.Tombstone{Kind: published.TombstoneMerchant, ID: published.ID("gone"), Source: source("gone"), EndedAt: time.Now()}))
	p.create(published.EncodeDigestClaim(p.namespace, published.DigestClaim{
		Digest: apikey.NewDigest(strings.Repeat("c", 40)), Source: source("claimant"), KeyID: published.ID("claimant"), ClaimedAt: time.Now(),
	}))
	p.create(brokenKey(t, p.namespace, secret))
	// The last object is there: so are all before.
	last := p.key("last", "acme")
	await.Until(t, fixture.Patience, "the API has seen everything", func() bool {
		return p.call(last, anywhere) == http.StatusOK && p.call(strings.Repeat("x", 40), anywhere) == http.StatusOK
	})

	for desc, c := range cases {
		t.Run(desc, func(t *testing.T) {
			p := &publisher{t, p.namespace, p.replica}
			if got := p.call(c.presented, c.from); got != c.status {
				t.Errorf("the API answers %d, want %d", got, c.status)
			}
			p.agree(c.presented, c.from, c.status, c.reason, c.words...)
		})
	}
}

// agree compares the explanation with what the API has logged.
func (p *publisher) agree(presented, from string, status int, reason string, words ...string) {
	p.t.Helper()
	code := terminal.ExitNegative
	if status == http.StatusOK {
		code = terminal.ExitDone
	}
	explain := func(args ...string) result {
		return runAs(p.t, admin, "default", presented+"\n", append([]string{"explain-401", "--key-stdin", "--from", from, "--credentials-namespace", p.namespace}, args...)...)
	}
	got := explain().want(p.t, code, words...)
	var e struct {
		Reason   string `json:"reason"`
		Accepted bool   `json:"accepted"`
	}
	if err := json.Unmarshal([]byte(explain("-o", "json").want(p.t, code).out), &e); err != nil || e.Reason != reason || e.Accepted != (status == http.StatusOK) {
		p.t.Errorf("reason %q, accepted %v, want %q, %d (%v)", e.Reason, e.Accepted, reason, status, err)
	}
	if strings.Contains(got.out+got.problems, presented) {
		p.t.Error("the key is printed")
	}
	if reason == "" {
		return
	}
	id, _ := apikey.ParseID(presented)
	logged := fmt.Sprintf(`"role":%q,"reason":%q,"keyID":%q,"clientAddress":%q`, p.namespace, reason, id, from)
	await.Until(p.t, fixture.Patience, "the API logs "+logged, func() bool {
		p.call(presented, from) // a line for each key id and address is at most one a second
		return strings.Contains(installation.Logs.String(), logged)
	})
}

func (p *publisher) call(key, from string) int {
	p.t.Helper()
	answer, err := fixture.Call(fixture.Insecure, p.replica.Public, http.MethodGet, fixture.Me, key, "", "X-Forwarded-For", from)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer.Status
}

// Who may read nothing but the published objects gets the command untried, for somebody who may.
func TestExplain401_AdviceWithoutRights(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	n.Merchant("acme")
	old := issue(t, n, "till", "acme")
	run(t, n.Namespace, "keys rotate till --overlap 0s").want(t, terminal.ExitDone)
	name := n.Namespace + "-on-call"
	kubeconfig := user(t, name)
	grant(t, name, kubetest.CredentialsNamespace, documented(t)["merchant-on-call"]...)
	n.Eventually("it advises a command", func() bool {
		got := runAs(t, kubeconfig, n.Namespace, old, "explain-401", "--key-stdin", "--from", anywhere)
		return strings.Contains(got.out, "Give the till the current key: kubectl merchant keys reveal till -n "+n.Namespace)
	})
}

// The operator claims a digest once. Somebody with rights in the credentials namespace could publish it twice.
func TestExplain401_DigestClaimedTwice(t *testing.T) {
	t.Parallel()
	p := newPublisher(t)
	shared := strings.Repeat("s", 40)
	p.key("first", "acme", external(shared), func(r *published.KeyRecord) { r.Current.CreatedAt = r.Current.CreatedAt.Add(-time.Hour) })
	p.key("second", "acme", external(shared))
	await.Until(t, fixture.Patience, "the first one has it", func() bool { return p.call(shared, anywhere) == http.StatusOK })
	p.agree(shared, anywhere, 200, "", "shops/first")
}

func newForeignKey(t *testing.T, uid types.UID) string {
	t.Helper()
	key, err := apikey.New(published.ID(uid))
	if err != nil {
		t.Fatal(err)
	}
	return key.Reveal()
}

func TestExplain401_Usage(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	run(t, n.Namespace, "explain-401 --from 203.0.113.7").want(t, terminal.ExitUsage, "--key-stdin is missing", "printenv API_KEY |")
	run(t, n.Namespace, "explain-401 --key-stdin").want(t, terminal.ExitUsage, `--from must be an IP address, not ""`)
	run(t, n.Namespace, "explain-401 --key-stdin --from shop.example").want(t, terminal.ExitUsage, `--from must be an IP address, not "shop.example"`)
	run(t, n.Namespace, "explain-401 --key-stdin --from 203.0.113.7").want(t, terminal.ExitUsage, "there is no key on stdin")
	run(t, n.Namespace, "explain-401 mk_live_x --key-stdin").want(t, terminal.ExitUsage, "unexpected argument")
}

// brokenKey is the record of a key that nobody can read.
func brokenKey(t *testing.T, namespace, name string) (client.Object, error) {
	t.Helper()
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{published.Label: published.LabelKey}},
		Type:       published.KeySecretType, Data: map[string][]byte{"record.json": []byte("{")},
	}, nil
}
