//go:build faults

package faults

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

func memoryFaults() []fault {
	return []fault{
		{
			"P10", "a tenant fills its ApiKeys, makes hundreds more, and opens many of their pages in the console",
			"the pages of others are answered, and the console stays below the memory limit of the chart", tryFatPages,
		},
	}
}

// containerMemory returns the memory limit of a role's container in the chart, in bytes.
func containerMemory(role string) (int64, error) {
	text, err := os.ReadFile(repository.Path("charts", "merchant-operator", "values.yaml"))
	if err != nil {
		return 0, err
	}
	var values map[string]json.RawMessage
	if err := yaml.Unmarshal(text, &values); err != nil {
		return 0, err
	}
	var container struct {
		Resources corev1.ResourceRequirements `json:"resources"`
	}
	if err := json.Unmarshal(values[role], &container); err != nil {
		return 0, fmt.Errorf("the values of %s: %w", role, err)
	}
	limit := container.Resources.Limits.Memory().Value()
	if limit == 0 {
		return 0, fmt.Errorf("the values of %s have no memory limit", role)
	}
	return limit, nil
}

// memoryEnvironment has a process collect garbage as it does in a container with the limit.
func memoryEnvironment(limit int64) []string {
	return []string{fmt.Sprintf("GOMEMLIMIT=%d", limit/10*9)}
}

// forgetPeak lets peakMemory begin anew.
func (p *process) forgetPeak(t testing.TB) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.running.Process.Pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// peakMemory returns the most memory that the running process has had at once, in bytes.
func (p *process) peakMemory(t testing.TB) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.running.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	kilobytes, err := strconv.ParseInt(strings.Fields(peak)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

// checkPeak fails the test if the process has had more memory than its container.
func (p *process) checkPeak(t testing.TB, limit int64, when string) (peak int64) {
	t.Helper()
	if peak = p.peakMemory(t); peak > limit {
		t.Errorf("%s: %s had %d MiB of memory, its container has %d", when, p.name, peak>>20, limit>>20)
	}
	return peak
}

// fatten fills metadata with what a tenant may write beside labels: 1 MB.
func fatten(object metav1.Object) {
	long := strings.Repeat("x", 1000)
	annotations := map[string]string{}
	maps.Copy(annotations, object.GetAnnotations())
	for n := range 240 {
		annotations[fmt.Sprint("example.com/", n)] = long
	}
	object.SetAnnotations(annotations)
	owners := object.GetOwnerReferences()
	for n := range 700 {
		owners = append(owners, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprint(n, long), UID: types.UID(strconv.Itoa(n))})
	}
	object.SetOwnerReferences(owners)
}

// fatKeys creates ApiKeys of 1.4 MB: metadata, and a status as the tenant may write it.
func (s *deployment) fatKeys(tenant client.Client, merchant string, many int) {
	s.t.Helper()
	for n := range many {
		key := &v1alpha1.ApiKey{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: fmt.Sprint("fat-", n)},
			Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: merchant}, Delivery: &v1alpha1.Delivery{Policy: v1alpha1.DeliveryNone}},
		}
		fatten(key)
		s.must(tenant.Create(s.t.Context(), key))
		eventually(s.t, "the operator has handled "+key.Name, func() bool {
			s.must(tenant.Get(s.t.Context(), client.ObjectKeyFromObject(key), key))
			return meta.FindStatusCondition(key.Status.Conditions, v1alpha1.ReadyCondition) != nil
		})
		eventually(s.t, key.Name+" is fat", func() bool {
			s.must(tenant.Get(s.t.Context(), client.ObjectKeyFromObject(key), key))
			for i := range 10 {
				meta.SetStatusCondition(&key.Status.Conditions, metav1.Condition{
					Type: fmt.Sprint("Theirs", i), Status: metav1.ConditionTrue, Reason: "Fat", Message: strings.Repeat("x", 32<<10),
				})
			}
			return tenant.Status().Update(s.t.Context(), key) == nil
		})
	}
}

// manyKeys creates ApiKeys without a Secret, and waits for none of them.
func (s *deployment) manyKeys(tenant client.Client, merchant string, many int) {
	s.t.Helper()
	for n := range many {
		s.must(tenant.Create(s.t.Context(), &v1alpha1.ApiKey{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: fmt.Sprint("many-", n)},
			Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: merchant}, Delivery: &v1alpha1.Delivery{Policy: v1alpha1.DeliveryNone}},
		}))
	}
}

// fatSecrets fills the delivered Secret of an ApiKey, and a second one that its tenant plants beside it, with 1.5 MB each.
func (s *deployment) fatSecrets(tenant client.Client, key *v1alpha1.ApiKey) {
	s.t.Helper()
	data := map[string][]byte{"theirs": []byte(strings.Repeat("x", 500<<10))}
	planted := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: "fat-" + key.Name,
			Labels:          map[string]string{"merchant-operator.io/delivered": "key"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(key, v1alpha1.SchemeGroupVersion.WithKind("ApiKey"))},
		},
		Data: data,
	}
	fatten(planted)
	s.must(tenant.Create(s.t.Context(), planted))
	eventually(s.t, "the Secret of "+key.Name+" is fat", func() bool {
		var delivered corev1.Secret
		s.must(tenant.Get(s.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: key.Name + "-key"}, &delivered))
		fatten(&delivered)
		delivered.Data["theirs"] = data["theirs"]
		return tenant.Update(s.t.Context(), &delivered) == nil
	})
}

// tryFatPages opens 8, 32 and 100 pages of a tenant with fat ApiKeys at once, while somebody else opens one after the other.
func tryFatPages(t *testing.T) (int, string) {
	t.Helper()
	limit, err := containerMemory("console")
	if err != nil {
		t.Fatal(err)
	}
	s := deploy(t, 1, 0)
	tenant, own := s.tenant()
	c := s.openConsole()
	shared.secret(c.issue("till").Key())
	own.Merchant("bait")
	own.allow("oidc:mallory")
	own.fatKeys(tenant, "bait", 20)
	own.Merchant("crowd")
	own.manyKeys(tenant, "crowd", 400**intensity)
	pages := []string{c.url + "/merchants/" + own.Namespace + "/bait", c.url + "/merchants/" + own.Namespace + "/crowd"}
	mallory := c.signIn(mallory)
	eventually(t, "mallory sees a page", func() bool { return mallory.Get(t, pages[0]).Status == http.StatusOK })
	c.forgetPeak(t)
	tried := 0
	var slowest time.Duration
	var peaks []string
	for _, atOnce := range []int{8, 32, 100} {
		var answered, busy atomic.Int64
		stop := make(chan struct{})
		var opening sync.WaitGroup
		for n := range atOnce {
			opening.Go(func() {
				for page := pages[n%len(pages)]; ; {
					select {
					case <-stop:
						return
					default:
					}
					switch got := mallory.Get(t, page); {
					case got.Status == http.StatusOK:
						answered.Add(1)
					case got.Status == http.StatusServiceUnavailable && got.Header.Get("Retry-After") != "":
						busy.Add(1)
					default:
						t.Errorf("mallory got %d: %s", got.Status, got.Text)
						return
					}
				}
			})
		}
		for range 10 * *intensity {
			began := time.Now()
			if got := c.alice.Get(t, c.page); got.Status != http.StatusOK || !strings.Contains(got.Text, "till") {
				t.Errorf("beside %d pages of another person: %d %s", atOnce, got.Status, got.Text)
			}
			slowest = max(slowest, time.Since(began))
			tried++
		}
		close(stop)
		opening.Wait()
		peak := c.checkPeak(t, limit, fmt.Sprint(atOnce, " pages at once"))
		t.Logf("%d pages at once: %d answered, %d busy, peak %d MiB", atOnce, answered.Load(), busy.Load(), peak>>20)
		peaks = append(peaks, fmt.Sprint(peak>>20))
	}
	return tried, fmt.Sprintf("%d pages of a neighbour, all answered, the slowest after %d ms; %s MiB at most beside 8, 32 and 100 pages at once", tried, slowest.Milliseconds(), strings.Join(peaks, ", "))
}
