package apikeys

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// The newest version is remembered, and whether it vanished, or was replaced by an older one, until there is a newer one.
func TestVersions(t *testing.T) {
	at := func(issued, generation int64) version { return version{published.Order{Issued: issued}, generation} }
	var v versions
	for _, step := range []struct {
		name          string
		exists        version
		before, after version
		want          knownVersion
	}{
		{name: "read", exists: at(10, 1), want: knownVersion{at(10, 1), false}},
		{name: "rotated", before: at(10, 1), after: at(20, 2), want: knownVersion{at(20, 2), false}},
		{name: "restored", before: at(20, 2), after: at(10, 1), want: knownVersion{at(20, 2), true}},
		{name: "restored, and read", exists: at(10, 1), want: knownVersion{at(20, 2), true}},
		{name: "restored to an older one still", before: at(10, 1), after: at(5, 1), want: knownVersion{at(20, 2), true}},
		{name: "gone", before: at(5, 1), want: knownVersion{at(20, 2), true}},
		{name: "put back, and read", exists: at(20, 2), want: knownVersion{at(20, 2), true}},
		{name: "put back", before: at(20, 2), after: at(20, 2), want: knownVersion{at(20, 2), false}},
		{name: "unreadable", before: at(20, 2), want: knownVersion{at(20, 2), true}},
		{name: "written", exists: at(30, 3), want: knownVersion{at(30, 3), false}},
		{name: "the event of a former one is late", before: at(20, 2), want: knownVersion{at(30, 3), false}},
		{name: "replaced", before: at(0, 0), after: at(40, 4), want: knownVersion{at(40, 4), false}},
	} {
		if step.exists != (version{}) {
			v.exists("key", step.exists)
		} else {
			v.replaced("key", step.before, step.after)
		}
		if diff := cmp.Diff(step.want, v.newest("key"), cmp.AllowUnexported(version{}, knownVersion{})); diff != "" {
			t.Errorf("%s: %s", step.name, diff)
		}
	}
	if v.forget("key"); len(v.known) != 0 {
		t.Errorf("remembers %v", v.known)
	}
}

// A record vanishes, and the watch has not reported it yet. What this operator has read or written counts, so no generation is given twice.
func TestPlan_RecordVanishesBeforeItsEvent(t *testing.T) {
	record := published.KeyName(published.ID(thisUID))
	for name, test := range map[string]struct {
		deletedAt string // the read of the API server that finds no record
		publish   bool   // this operator has written the record, and its cache does not have it
	}{
		"that the cache has":             {deletedAt: record},
		"that this operator has written": {publish: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := upToDate()
			f.record.MerchantID = published.ID("merchant")
			f.apiKey.Status = v1alpha1.ApiKeyStatus{} // a tenant may write it
			f.apiKey.Spec.Rotation.Trigger = "another"
			objects := stored(t, f)
			secret := f.secret.DeepCopy()
			secret.Namespace = "credentials"
			r := frozen(t, clocktesting.NewFakePassiveClock(now), func(stored client.Client, read client.ObjectKey) {
				if read.Name == test.deletedAt {
					if err := client.IgnoreNotFound(stored.Delete(t.Context(), secret)); err != nil {
						t.Fatal(err)
					}
				}
			}, objects...)
			var err error
			if r.Metrics, err = NewMetrics(prometheus.NewRegistry()); err != nil {
				t.Fatal(err)
			}
			read(t, r.Client, client.ObjectKeyFromObject(f.apiKey), f.apiKey)
			if test.publish {
				if err := r.Client.Delete(t.Context(), secret); err != nil {
					t.Fatal(err)
				}
				f.secret = nil
				if err := r.publish(t.Context(), &f, *f.record); err != nil {
					t.Fatal(err)
				}
				if err := r.Client.Delete(t.Context(), secret); err != nil {
					t.Fatal(err)
				}
			}
			p, err := planned(t, r, f.apiKey)
			if err != nil {
				t.Fatal(err)
			}
			if p.newKey == nil || p.newKey.generation() != 3 || p.newKey.cause != v1alpha1.RotationRecovery {
				t.Errorf("issues %+v, want generation 3 with the cause Recovery", p.newKey)
			}
		})
	}
}
