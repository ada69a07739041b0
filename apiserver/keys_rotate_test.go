package apiserver_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

const rotate = "/api/v1/keys/rotate"

// rotated rotates a key and returns the new one.
func (f *fixture) rotated(r *replica, key string) string {
	f.t.Helper()
	fresh := r.call(http.MethodPost, rotate, key, "").want(f.t, http.StatusOK).text("fullKey")
	f.issued = append(f.issued, fresh)
	return fresh
}

func TestRotate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	old := f.key("till", f.merchant("acme"))
	r := f.start()
	got := r.call(http.MethodPost, rotate, old, "").want(t, http.StatusOK)
	f.issued = append(f.issued, got.text("fullKey"))
	fresh, err := apikey.Parse(got.text("fullKey"))
	if err != nil {
		t.Fatal(err)
	}
	oldKey, err := apikey.Parse(old)
	if err != nil || fresh.ID() != oldKey.ID() || fresh.Reveal() == old {
		t.Errorf("the new key has key id %s, the old one %s, %v", fresh.ID(), oldKey.ID(), err)
	}
	want := map[string]any{
		"fullKey": fresh.Reveal(), "prefix": fresh.Prefix(),
		"warning": "Store this key securely now: it is not shown again. The previous key no longer works.",
	}
	if diff := cmp.Diff(want, got.body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control %q", got.header.Get("Cache-Control"))
	}

	r.call(http.MethodGet, me, old, "").want(t, http.StatusUnauthorized)
	r.call(http.MethodPost, rotate, old, "").want(t, http.StatusUnauthorized)
	profile := r.call(http.MethodGet, me, fresh.Reveal(), "").want(t, http.StatusOK)
	if prefix := profile.body["apiKey"].(map[string]any)["prefix"]; prefix != fresh.Prefix() {
		t.Errorf("prefix %v, want %s", prefix, fresh.Prefix())
	}
	if f.rotated(r, f.rotated(r, fresh.Reveal())) == "" {
		t.Error("the new key did not rotate")
	}
}

// A rotation writes the record, and leaves all else in the Secret.
func TestRotate_Record(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	overlapping := f.newKey(published.ID("earlier")).Reveal()
	handled := apikey.NewDigest("handled")
	old := f.key("till", f.merchant("acme"), func(r *published.KeyRecord) {
		r.Generation, r.HandledTrigger, r.HandledDigest = 7, "2026-11-21", &handled
		r.Previous = []published.Previous{{Digest: apikey.NewDigest(overlapping), ValidUntil: time.Now().Add(time.Hour).UTC()}}
	})
	before := f.keySecret(old)
	before.Labels["team"], before.Annotations = "payments", map[string]string{"note": "kept"}
	before.Data["other"] = []byte("kept")
	f.updateSecret(before)
	r := f.start()
	r.call(http.MethodGet, me, overlapping, "").want(t, http.StatusOK)
	fresh := f.rotated(r, old)
	r.call(http.MethodGet, me, overlapping, "").want(t, http.StatusUnauthorized)

	after := f.keySecret(old)
	record, err := published.DecodeKey(after)
	if err != nil {
		t.Fatal(err)
	}
	wantRecord, err := published.DecodeKey(before)
	if err != nil {
		t.Fatal(err)
	}
	if record.Revision <= wantRecord.Revision {
		t.Errorf("revision %d after %d", record.Revision, wantRecord.Revision)
	}
	wantRecord.Generation, wantRecord.Revision, wantRecord.Previous = 8, record.Revision, nil
	wantRecord.Current = published.Current{Digest: apikey.NewDigest(fresh), Prefix: fresh[:25], CreatedAt: record.Current.CreatedAt}
	wantRecord.LastRotation = published.RotationEvent{Time: record.Current.CreatedAt, Cause: v1alpha1.RotationAPI}
	if diff := cmp.Diff(wantRecord, record); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if time.Since(record.Current.CreatedAt).Abs() > time.Minute {
		t.Errorf("createdAt %s", record.Current.CreatedAt)
	}
	if after.Labels["team"] != "payments" || after.Annotations["note"] != "kept" || string(after.Data["other"]) != "kept" {
		t.Errorf("what else was in the Secret is lost: %v %v", after.Labels, after.Annotations)
	}
	for _, key := range []string{old, fresh} {
		if strings.Contains(string(after.Data["record.json"]), key) {
			t.Error("a key is in the Secret in plaintext")
		}
	}
}

// The guarantee of a rotation: no replica accepts the old key, every replica accepts the new one,
// though the watches of all of them are frozen.
func TestRotate_FrozenWatches(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	old := f.key("till", f.merchant("acme"))
	replicas := []*replica{f.start(), f.start()}
	for _, r := range replicas {
		r.proxy.FreezeWatches()
	}
	for turn := range 4 {
		fresh := f.rotated(replicas[turn%2], old) // by what is, not by what the replica knows
		for _, r := range replicas {
			r.call(http.MethodGet, me, old, "").want(t, http.StatusUnauthorized)
			r.call(http.MethodPost, rotate, old, "").want(t, http.StatusUnauthorized)
			got := r.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK)
			if prefix := got.body["apiKey"].(map[string]any)["prefix"]; prefix != fresh[:25] {
				t.Errorf("prefix %v is not of the presented key", prefix)
			}
		}
		old = fresh
	}
}

func TestRotate_Concurrent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	old := f.key("till", f.merchant("acme"))
	replicas := []*replica{f.start(), f.start()}
	const calls = 16
	answers := make([]result, calls)
	var group sync.WaitGroup
	for i := range calls {
		group.Go(func() { answers[i] = replicas[i%2].call(http.MethodPost, rotate, old, "") })
	}
	group.Wait()
	var winners []string
	for _, got := range answers {
		if got.status == http.StatusOK {
			winners = append(winners, got.text("fullKey"))
		} else {
			got.want(t, http.StatusUnauthorized)
		}
	}
	f.issued = append(f.issued, winners...)
	if len(winners) != 1 {
		t.Fatalf("%d rotations won, want 1", len(winners))
	}
	for _, r := range replicas {
		r.call(http.MethodGet, me, winners[0], "").want(t, http.StatusOK)
	}
}

// A key made elsewhere rotates into a generated one.
func TestRotate_KeyMadeElsewhere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	elsewhere := strings.Repeat("elsewhere", 5)
	f.key("till", f.merchant("acme"), func(r *published.KeyRecord) {
		r.Current = published.Current{Digest: apikey.NewDigest(elsewhere), CreatedAt: time.Now().UTC()}
	})
	r := f.start()
	fresh := f.rotated(r, elsewhere)
	r.call(http.MethodGet, me, elsewhere, "").want(t, http.StatusUnauthorized)
	r.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK)
}

func TestRotate_DeletedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	r.proxy.FreezeWatches()
	if err := kube.CoreV1().Secrets(f.namespace).Delete(t.Context(), f.keySecret(key).Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.call(http.MethodPost, rotate, key, "").want(t, http.StatusUnauthorized)
}

// Also before the replica knows that the key is disabled.
func TestRotate_DisabledKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	r.proxy.FreezeWatches()
	secret := f.keySecret(key)
	record, err := published.DecodeKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	record.State = v1alpha1.ApiKeyDisabled
	disabled, err := published.EncodeKey(f.namespace, record)
	if err != nil {
		t.Fatal(err)
	}
	secret.Data = disabled.Data
	f.updateSecret(secret)
	r.call(http.MethodPost, rotate, key, "").want(t, http.StatusUnauthorized)
}

// A key in its overlap works everywhere, but it must not end the key that took its place.
func TestRotate_KeyInItsOverlap(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var replaced string
	current := f.key("till", f.merchant("acme"), func(r *published.KeyRecord) {
		replaced = f.newKey(r.KeyID).Reveal()
		r.Previous = []published.Previous{{Digest: apikey.NewDigest(replaced), ValidUntil: time.Now().Add(time.Hour).UTC()}}
	})
	r := f.start()
	r.call(http.MethodPost, rotate, replaced, "").want(t, http.StatusUnauthorized)
	for _, key := range []string{current, replaced} {
		r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
		r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).want(t, http.StatusCreated)
	}
	fresh := f.rotated(r, current)
	r.call(http.MethodGet, me, replaced, "").want(t, http.StatusUnauthorized)
	r.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK)
}

// roundTrip is a RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// onUpdate puts something around each update that a replica sends to the Kubernetes API.
func (f *fixture) onUpdate(around func(r *http.Request, next http.RoundTripper) (*http.Response, error)) {
	f.kubeConfig = rest.CopyConfig(f.kubeConfig)
	f.kubeConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPut {
				return around(r, next)
			}
			return next.RoundTrip(r)
		})
	})
}

const unavailable = "temporarily unavailable; retry"

func TestRotate_KubernetesDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	r.proxy.Cut()
	got := r.call(http.MethodPost, rotate, key, "")
	got.wantError(t, http.StatusServiceUnavailable, unavailable)
	if got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).want(t, http.StatusCreated) // all else goes on
	r.proxy.Restore()
	r.call(http.MethodGet, me, f.rotated(r, key), "").want(t, http.StatusOK)
}

func TestRotate_KubernetesHangs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	f.onUpdate(func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, r.Body) // a server notices that its client is gone once it has read the body
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	r := f.start()
	r.call(http.MethodPost, rotate, key, "").wantError(t, http.StatusServiceUnavailable, unavailable)
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
}

func TestRotate_WriteConflict(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	conflicts := 2
	f.onUpdate(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if conflicts > 0 {
			conflicts--
			secret := f.keySecret(key)
			secret.Annotations = map[string]string{"touched": string(rune('0' + conflicts))}
			f.updateSecret(secret)
		}
		return next.RoundTrip(r)
	})
	r := f.start()
	fresh := f.rotated(r, key)
	r.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK)
	if conflicts != 0 || f.keySecret(key).Annotations["touched"] != "0" {
		t.Error("the others' writes were lost")
	}
}

// The swap went through, and only its answer was lost.
func TestRotate_LostAnswer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	updates := 0
	f.onUpdate(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		updates++
		response, err := next.RoundTrip(r)
		if err == nil {
			_ = response.Body.Close()
		}
		return nil, errors.New("connection reset by peer")
	})
	r := f.start()
	fresh := f.rotated(r, key)
	r.call(http.MethodGet, me, key, "").want(t, http.StatusUnauthorized)
	r.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK)
	if updates != 1 {
		t.Errorf("%d updates, want 1", updates)
	}
}

func TestRotate_RedisDownAfterSwap(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	own := redistest.Start(t)
	f.onUpdate(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		own.Stop()
		return next.RoundTrip(r)
	})
	r := f.start(func(o *apiserver.Options) { o.RedisURL = own.URL() })
	got := r.call(http.MethodPost, rotate, key, "")
	got.wantError(t, http.StatusServiceUnavailable,
		"key rotation did not complete; if the key no longer works, rotate it through its ApiKey")
	if got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	own.Start()
	eventually(t, "the old key is dead", func() bool {
		return r.call(http.MethodGet, me, key, "").status == http.StatusUnauthorized
	})
}

// A client that disconnects leaves no swap without its override.
func TestRotate_ClientDisconnects(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	swapping, gone := make(chan struct{}), make(chan struct{})
	f.onUpdate(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		close(swapping)
		<-gone
		return next.RoundTrip(r)
	})
	r, other := f.start(), f.start()
	for _, each := range []*replica{r, other} {
		each.proxy.FreezeWatches() // so that only the rotation itself can reach the others
	}

	ctx, hangUp := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+rotate, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	go func() {
		<-swapping
		hangUp()
	}()
	if response, err := client.Do(request); err == nil {
		_ = response.Body.Close()
		t.Fatal("a response, although the client disconnected")
	}
	close(gone)
	eventually(t, "the override is in force", func() bool {
		return other.call(http.MethodGet, me, key, "").status == http.StatusUnauthorized
	})
	record, err := published.DecodeKey(f.keySecret(key))
	if err != nil || record.Generation != 2 {
		t.Errorf("generation %d, %v, want 2", record.Generation, err)
	}
}

// After its 401 the loser finds no replica that still accepts the key, though the winner has no response yet.
func TestRotate_LoserGets401(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	loser, bystander := f.start(), f.start()
	swapped, goOn := make(chan struct{}), make(chan struct{})
	f.onUpdate(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		close(swapped)
		<-goOn
		return response, err
	})
	winner := f.start()
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	for _, each := range []*replica{winner, loser, bystander} {
		each.proxy.FreezeWatches()
	}

	won := make(chan result, 1)
	go func() { won <- winner.call(http.MethodPost, rotate, key, "") }()
	<-swapped
	bystander.call(http.MethodGet, me, key, "").want(t, http.StatusOK) // no response has been sent yet
	loser.call(http.MethodPost, rotate, key, "").want(t, http.StatusUnauthorized)
	bystander.call(http.MethodGet, me, key, "").want(t, http.StatusUnauthorized)
	release()
	fresh := (<-won).want(t, http.StatusOK).text("fullKey")
	f.issued = append(f.issued, fresh)
	bystander.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK)
}
