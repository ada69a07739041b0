// Package oldkeys tests whether a key that was rotated is still used: with a till, a process that keeps its old key, and all that stands between
// it and the ApiKey's status: API replica, Redis, dispatcher and operator, which are killed and frozen meanwhile.
package oldkeys

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/controllers/apikeys"
	"github.com/merchant-operator/merchant-operator/dispatcher"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubeproxy"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// Hours and minutes are seconds here. Between use and condition are till, replica, Redis, dispatcher and operator: evidence is long enough for
// all of them on a slow machine, and the window is longer by far more than a step.
const (
	step     = time.Second
	window   = 24 * time.Second
	evidence = 15 * time.Second
)

// product is one of each role.
type product struct {
	fixture.Tenant

	installation *fixture.Installation
	replica      fixture.Replica
	operatorOps  string
	watches      *kubeproxy.Proxy // the operator's
	key          *v1alpha1.ApiKey
}

func newProduct(t *testing.T) *product {
	t.Helper()
	installation, err := fixture.Install()
	t.Cleanup(func() {
		if err := installation.Close(); err != nil {
			t.Error(err)
		}
	})
	check(t, err)
	p := &product{Tenant: fixture.NewTenant(t, installation.Client), installation: installation}
	var kubeconfig string
	p.watches, kubeconfig, err = installation.Proxy(fixture.OperatorAccount, "operator")
	check(t, err)
	p.operatorOps, err = installation.StartOperator("operator", func(o *controllers.Options) {
		o.Kubeconfig, o.LeaderElect, o.Ops.Secure, o.LastUseInterval = kubeconfig, false, false, step/10
		o.OldKeys = apikeys.OldKeyTimes{Window: window, Evidence: evidence, Warning: time.Hour, Check: step / 5}
	})
	check(t, err)
	p.replica, err = installation.StartAPIServer("apiserver", func(o *apiserver.Options) { o.LastUseStep = step })
	check(t, err)
	p.startDispatcher()
	return p
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (p *product) startDispatcher() {
	p.T.Helper()
	_, err := p.installation.StartDispatcher("dispatcher", func(o *dispatcher.Options) { o.PublishUsesInterval, o.LastUseStep = step/10, step })
	check(p.T, err)
}

// till is a process that uses the key in its file all the time.
type till struct {
	keyFile string
	log     string // has a line for each use of an accepted key: when the request began and when it had ended, in seconds
}

func (p *product) startTill(key string) till {
	p.T.Helper()
	dir := p.T.TempDir()
	l := till{filepath.Join(dir, "key"), filepath.Join(dir, "log")}
	l.give(p.T, key)
	const script = `while :; do
  began=$(date +%s)
  status=$(curl -s -m 5 -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $(cat "$KEY_FILE")" "$URL")
  case $status in 200 | 403) echo "$began $(date +%s)" >>"$LOG" ;; esac
  sleep 0.1
done`
	command := exec.Command("sh", "-c", script)
	command.Env = append(os.Environ(), "KEY_FILE="+l.keyFile, "LOG="+l.log, "URL="+p.replica.Public+fixture.Me)
	check(p.T, command.Start())
	p.T.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return l
}

// give replaces the key that the till uses.
func (l till) give(t testing.TB, key string) {
	t.Helper()
	next := l.keyFile + ".next"
	check(t, os.WriteFile(next, []byte(key), 0o600))
	check(t, os.Rename(next, l.keyFile))
}

// use is a request with an accepted key: it reached the API between the two.
type use struct{ began, ended time.Time }

func (l till) uses(t *testing.T) (uses []use) {
	t.Helper()
	text, err := os.ReadFile(l.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var began, ended int64
		if _, err := fmt.Sscanf(line, "%d %d", &began, &ended); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		uses = append(uses, use{time.Unix(began, 0), time.Unix(ended, 0)})
	}
	return uses
}

// await waits until the condition has a status and a reason.
func (p *product) await(desc string, status metav1.ConditionStatus, reason string) {
	p.T.Helper()
	var last metav1.Condition
	p.T.Cleanup(func() {
		if p.T.Failed() {
			p.T.Logf("when waiting until %s: %s %s: %s", desc, last.Status, last.Reason, last.Message)
		}
	})
	p.Eventually(desc, func() bool {
		check(p.T, p.installation.Client.Get(p.T.Context(), client.ObjectKeyFromObject(p.key), p.key))
		if c := meta.FindStatusCondition(p.key.Status.Conditions, v1alpha1.OldKeyInUseCondition); c != nil {
			last = *c
		}
		return last.Status == status && last.Reason == reason
	})
}

// awaitGauge waits until the operator counts that many overlaps which end soon while the old key is used.
func (p *product) awaitGauge(use string, count int) {
	p.T.Helper()
	want := `merchant_operator_overlaps_ending{use="` + use + `"} ` + strconv.Itoa(count) + "\n"
	p.Eventually("the operator exports "+want, func() bool {
		response, err := http.Get(p.operatorOps + "/metrics")
		if err != nil {
			return false
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		return err == nil && strings.Contains(string(text), want)
	})
}

// claims are the times since which the condition has said that no old key is used.
type claims struct {
	mu    sync.Mutex
	since []time.Time
}

func (c *claims) all() []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.since)
}

// watchClaims follows the ApiKey until the test ends.
func (p *product) watchClaims() *claims {
	p.T.Helper()
	kube, err := client.NewWithWatch(p.installation.Environment.Config, client.Options{Scheme: p.installation.Client.Scheme()})
	check(p.T, err)
	ctx, cancel := context.WithCancel(context.Background())
	changes, err := kube.Watch(ctx, &v1alpha1.ApiKeyList{}, client.InNamespace(p.key.Namespace))
	check(p.T, err)
	c := &claims{}
	var following sync.WaitGroup
	following.Go(func() {
		for change := range changes.ResultChan() {
			key, ok := change.Object.(*v1alpha1.ApiKey)
			if !ok || change.Type != watch.Modified {
				continue
			}
			said := meta.FindStatusCondition(key.Status.Conditions, v1alpha1.OldKeyInUseCondition)
			if said != nil && said.Status == metav1.ConditionFalse && said.Reason == v1alpha1.ReasonOldKeyUnused {
				c.mu.Lock()
				c.since = append(c.since, said.LastTransitionTime.Time)
				c.mu.Unlock()
			}
		}
	})
	p.T.Cleanup(func() { cancel(); changes.Stop(); following.Wait() })
	return c
}

// published returns what the dispatcher says of the key.
func (p *product) published() published.LastUses {
	p.T.Helper()
	name := published.LastUseName(published.LastUseShard(published.ID(p.key.UID)))
	configMap := new(corev1.ConfigMap)
	check(p.T, p.installation.Client.Get(p.T.Context(), client.ObjectKey{Namespace: kubetest.CredentialsNamespace, Name: name}, configMap))
	uses, err := published.DecodeLastUses(configMap)
	check(p.T, err)
	return uses
}

// TestOldKeyInUse_Till: a till keeps its old key after a rotation, and ApiKey and metric say so. Whatever is dead or frozen meanwhile, nobody says
// that the old key is not used. When the till has the new key, they do, and the old one works until the end of its overlap.
func TestOldKeyInUse_Till(t *testing.T) {
	p := newProduct(t)
	merchant := p.Merchant("coffee")
	key, old := p.ApiKey("till", "coffee", func(k *v1alpha1.ApiKey) { k.Spec.Rotation.OverlapSeconds = new(int32(1800)) })
	p.key = key
	answer := func(key string) int {
		answer, err := fixture.Call(http.DefaultClient, p.replica.Public, http.MethodGet, fixture.Me, key, "")
		if err != nil {
			return 0
		}
		return answer.Status
	}
	p.Eventually("the API accepts the key", func() bool { return answer(old) == http.StatusOK })
	claimed := p.watchClaims()
	l := p.startTill(old)
	p.Change(key, func() { key.Spec.Rotation.Trigger = "b" })
	p.await("the till uses the old key", metav1.ConditionTrue, v1alpha1.ReasonOverlapEndsSoon)
	p.Eventually("the status says when", func() bool {
		check(t, p.installation.Client.Get(t.Context(), client.ObjectKeyFromObject(key), key))
		return len(key.Status.PreviousKeys) == 1 && key.Status.PreviousKeys[0].LastUsedTime != nil
	})
	p.awaitGauge("used", 1)

	check(t, p.installation.Stop("dispatcher"))
	p.await("no dispatcher: nothing is known", metav1.ConditionUnknown, v1alpha1.ReasonUsesUnknown)
	p.awaitGauge("used", 0)
	p.awaitGauge("unknown", 1)
	p.startDispatcher()
	p.await("a dispatcher again", metav1.ConditionTrue, v1alpha1.ReasonOverlapEndsSoon)

	p.installation.Redis.Pause()
	p.await("a frozen Redis: nothing is known", metav1.ConditionUnknown, v1alpha1.ReasonUsesUnknown)
	p.installation.Redis.Resume()
	p.await("Redis again", metav1.ConditionTrue, v1alpha1.ReasonOverlapEndsSoon)

	// The merchant is suspended meanwhile. Its till gets 403, and needs the new key as much as before.
	p.Change(merchant, func() { merchant.Spec.State = v1alpha1.MerchantSuspended })
	p.Eventually("the till gets 403", func() bool { return answer(old) == http.StatusForbidden })
	p.watches.FreezeWatches()
	frozen := p.published().ReadTime
	p.Eventually("the frozen operator misses all events of a window", func() bool { return p.published().ReadTime.Sub(frozen) > window+evidence })
	p.watches.ThawWatches()
	p.await("the operator hears again", metav1.ConditionTrue, v1alpha1.ReasonOverlapEndsSoon)
	p.Change(merchant, func() { merchant.Spec.State = v1alpha1.MerchantActive })
	p.Eventually("the merchant is active again", func() bool { return answer(old) == http.StatusOK })

	// The till stops, so that only Redis knows its uses, and that is lost.
	l.give(t, "none")
	p.await("the old key was used for the last time", metav1.ConditionFalse, v1alpha1.ReasonOldKeyUnused)
	p.Eventually("the watch of this test has that, too", func() bool { return len(claimed.all()) > 0 })
	check(t, storetest.Inspect(t, p.installation.Redis).FlushAll(t.Context()).Err())
	p.await("a flushed Redis: nothing is known", metav1.ConditionUnknown, v1alpha1.ReasonUsesUnknown)
	l.give(t, old)
	p.await("the till uses the old key once more", metav1.ConditionTrue, v1alpha1.ReasonOverlapEndsSoon)

	for _, claim := range claimed.all() {
		for _, use := range l.uses(t) {
			// The evidence was at most so old, and had each use of the window before it, within two steps. All times are of whole seconds.
			if claim.Sub(use.ended) > evidence+step && claim.Sub(use.began) < window-4*step {
				t.Errorf("at %s the condition said that no old key is used, and the till had used it between %s and %s", claim, use.began, use.ended)
			}
		}
	}

	l.give(t, p.Delivered("till-key", "apiKey"))
	p.await("the till has the new key", metav1.ConditionFalse, v1alpha1.ReasonOldKeyUnused)
	p.awaitGauge("used", 0)
	p.awaitGauge("unknown", 0)
	if answer(old) != http.StatusOK {
		t.Error("something ended the overlap")
	}
	p.Delete(key)
	p.awaitGauge("used", 0) // that was a use; and the metrics are those of the process
	p.awaitGauge("unknown", 0)
}
