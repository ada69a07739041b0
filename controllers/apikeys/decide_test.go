package apikeys

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
)

// decision is what a plan comes to, as far as somebody could notice.
type decision struct {
	Outcome string // the reason of Ready; empty: Published
	Issue   v1alpha1.RotationCause
	Overlap time.Duration
	// Generation is of the key to be issued.
	Generation int64
	Repair     bool
	Move       string
	Remove     []string // names and reasons
	Warnings   []string // reasons
}

func decided(p *plan) decision {
	var d decision
	if outcome := outcomeFor(p.facts); outcome.Reason != v1alpha1.ReasonPublished {
		d.Outcome = outcome.Reason
	}
	if k := p.newKey; k != nil {
		d.Issue, d.Overlap, d.Generation = k.cause, k.overlap, k.generation()
	}
	d.Repair = p.repair != nil
	if p.move != nil {
		d.Move = p.move.Name
	}
	for _, r := range p.remove {
		d.Remove = append(d.Remove, r.Name+" "+r.reason)
	}
	if p.ignoresTrigger() && p.repair != nil {
		d.Warnings = append(d.Warnings, reasonTriggerIgnored)
	}
	for _, n := range noticesFor(p.facts, outcomeFor(p.facts)) {
		if p.confirm && n.Confirm && n.Event != "" {
			d.Warnings = append(d.Warnings, n.Event)
		}
	}
	return d
}

// decisions are facts, what is changed of them, and what is decided then.
type decisions map[string]struct {
	facts facts
	edit  func(*facts) // nil: nothing is changed
	want  decision
}

func (d decisions) check(t *testing.T) {
	t.Helper()
	for desc, row := range d {
		t.Run(desc, func(t *testing.T) {
			f := row.facts
			if row.edit != nil {
				row.edit(&f)
			}
			p := decide(f)
			if diff := cmp.Diff(row.want, decided(p)); diff != "" {
				t.Errorf("decide (-want +got):\n%s", diff)
			}
			if blank := cmp.Equal(decided(p), decision{Outcome: decided(p).Outcome}); p.idle() != blank {
				t.Errorf("idle() = %t for %+v", p.idle(), decided(p))
			}
		})
	}
}

func TestDecide(t *testing.T) {
	digest := apikey.NewDigest("another")
	decisions{
		"nothing to do": {facts: upToDate()},

		// Reasons for a new key.
		"the first issue": {
			facts: upToDate().lost().with(), edit: func(f *facts) { f.apiKey.Status, f.seen = v1alpha1.ApiKeyStatus{}, knownVersion{} },
			want: decision{Issue: v1alpha1.RotationInitial, Generation: 1},
		},
		"a record that was lost while no operator ran": {
			facts: upToDate().lost().with(deliveredSecret("till-key", 1)), edit: func(f *facts) { f.seen = knownVersion{} },
			want: decision{Issue: v1alpha1.RotationRecovery, Generation: 1},
		},
		"a younger ApiKey with a forged status": {
			facts: upToDate().lost().with(), edit: func(f *facts) { f.younger, f.seen = true, knownVersion{} },
			want: decision{Issue: v1alpha1.RotationInitial, Generation: 1},
		},
		"a record that is lost": {
			facts: upToDate().lost(),
			want:  decision{Issue: v1alpha1.RotationRecovery, Generation: 3},
		},
		"a record that cannot be read but has its generation": {
			facts: upToDate().lost(), edit: func(f *facts) {
				f.secret = &corev1.Secret{Data: map[string][]byte{"record.json": []byte(`{"generation":8}`)}}
			},
			want: decision{Issue: v1alpha1.RotationRecovery, Generation: 9},
		},
		"a lost record, and what a tenant claims to be its generation": {
			facts: upToDate().lost().with(deliveredSecret("till-key", 1<<53-1)), edit: func(f *facts) { f.apiKey.Status.KeyGeneration = 1 << 53 },
			want: decision{Issue: v1alpha1.RotationRecovery, Generation: 3},
		},
		"a record behind the one that was seen": {
			facts: upToDate(), edit: func(f *facts) {
				f.seen = knownVersion{version: version{published.Order{Issued: now.UnixMilli(), Revision: 9}, 8}}
				f.apiKey.Spec.Rotation.Trigger = "b"
			},
			want: decision{Issue: v1alpha1.RotationRecovery, Generation: 9},
		},
		"a record behind the status, which decides nothing": {
			facts: upToDate(), edit: func(f *facts) { f.apiKey.Status.KeyGeneration = 1 << 53 },
		},
		"a record of the status's generation with another prefix": {
			facts: upToDate(), edit: func(f *facts) { f.apiKey.Status.Prefix = "mk_live_y" },
		},
		"a rotation, and what a tenant claims to be the generation": {
			facts: upToDate().with(deliveredSecret("till-key", 1<<53-1)), edit: func(f *facts) {
				f.apiKey.Spec.Rotation.Trigger, f.apiKey.Status.KeyGeneration = "b", 1<<53
				f.apiKey.Status.LastRotation = &v1alpha1.RotationStatus{Time: metav1.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}
			},
			want: decision{Issue: v1alpha1.RotationTrigger, Overlap: time.Hour, Generation: 3},
		},
		"a superseded record": {
			facts: upToDate(), edit: func(f *facts) { f.record.Superseded = true },
			want: decision{Issue: v1alpha1.RotationRecovery, Generation: 3},
		},
		"a record ahead of the status": {
			facts: upToDate(), edit: func(f *facts) { f.apiKey.Status.KeyGeneration, f.apiKey.Status.Prefix = 1, "mk_live_y" },
		},
		"a record with a lost status": {
			facts: upToDate(), edit: func(f *facts) { f.apiKey.Status = v1alpha1.ApiKeyStatus{ObservedGeneration: 5} },
		},
		"a record behind the one that was seen, and no Merchant": {
			facts: upToDate(), edit: func(f *facts) {
				f.seen = knownVersion{version: version{published.Order{Issued: now.UnixMilli(), Revision: 9}, 8}}
				f.merchantID = ""
			},
			want: decision{Outcome: v1alpha1.ReasonMerchantNotFound, Warnings: []string{reasonKeyLost}},
		},
		"a superseded record, and no Merchant": {
			facts: upToDate(), edit: func(f *facts) { f.record.Superseded = true; f.merchantID = "" },
			want: decision{Outcome: v1alpha1.ReasonMerchantNotFound, Warnings: []string{reasonKeyLost}},
		},
		"a superseded record of a key that spec.keyDigest still names": {
			facts: upToDate().external("vault"), edit: func(f *facts) { f.record.Superseded = true },
			want: decision{Outcome: v1alpha1.ReasonKeyDigestUsed, Warnings: []string{reasonKeyLost}},
		},
		"a superseded record, and another spec.keyDigest": {
			facts: upToDate().external("vault"), edit: func(f *facts) { f.record.Superseded = true; f.digest = &digest; f.claims = nil },
			want: decision{Issue: v1alpha1.RotationRecovery, Generation: 3},
		},
		"a record of a newer version": {
			facts: upToDate(), edit: func(f *facts) { f.record, f.newer = nil, true; f.apiKey.Spec.Rotation.Trigger = "b" },
			want: decision{Outcome: v1alpha1.ReasonNewerVersion},
		},
		"revoked by a newer operator": {
			facts: upToDate(), edit: func(f *facts) { f.record.Revocation = published.Revocation{Revoked: true, RevokedBy: 2} },
			want: decision{Outcome: v1alpha1.ReasonNewerVersion},
		},
		"revoked by nobody knows whom, and a new trigger": {
			facts: upToDate(), edit: func(f *facts) { f.record.Revoked = true; f.apiKey.Spec.Rotation.Trigger = "b" },
			want: decision{Outcome: v1alpha1.ReasonNewerVersion},
		},
		"revoked by a newer operator, and superseded": {
			facts: upToDate(), edit: func(f *facts) {
				f.record.Superseded, f.record.Revocation = true, published.Revocation{Revoked: true, RevokedBy: 2}
			},
			want: decision{Outcome: v1alpha1.ReasonNewerVersion, Warnings: []string{reasonKeyLost}},
		},
		"revoked by an operator of this version": {
			facts: upToDate(), edit: func(f *facts) { f.record.Revocation = published.Revocation{Revoked: true, RevokedBy: 1} },
			want: decision{Repair: true},
		},
		"another Merchant of the name": {
			facts: upToDate(), edit: func(f *facts) { f.merchantID = "merchant7654" },
			want: decision{Issue: v1alpha1.RotationInitial, Generation: 3},
		},
		"another Merchant of the name, and a new trigger": {
			facts: upToDate(), edit: func(f *facts) { f.merchantID = "merchant7654"; f.apiKey.Spec.Rotation.Trigger = "b" },
			want: decision{Issue: v1alpha1.RotationInitial, Generation: 3},
		},
		"a new trigger": {
			facts: upToDate(), edit: func(f *facts) { f.apiKey.Spec.Rotation.Trigger = "b" },
			want: decision{Issue: v1alpha1.RotationTrigger, Overlap: time.Hour, Generation: 3},
		},
		"a Merchant that is not published": {
			facts: upToDate(), edit: func(f *facts) { f.merchantState = "" },
			want: decision{Outcome: v1alpha1.ReasonMerchantNotPublished},
		},
		"a Merchant that is not published, and a new trigger": {
			facts: upToDate(), edit: func(f *facts) { f.merchantState = ""; f.apiKey.Spec.Rotation.Trigger = "b" },
			want: decision{Issue: v1alpha1.RotationTrigger, Overlap: time.Hour, Generation: 3, Outcome: v1alpha1.ReasonMerchantNotPublished},
		},
		"a new trigger after too many": {
			facts: upToDate(), edit: func(f *facts) { f.apiKey.Spec.Rotation.Trigger, f.record.TriggerTAT = "b", now.Add(10*time.Minute) },
			want: decision{Outcome: v1alpha1.ReasonRotationDeferred},
		},
		"another digest after too many": {
			facts: upToDate().external("mine"), edit: func(f *facts) { f.digest, f.record.TriggerTAT = &digest, now.Add(10*time.Minute) },
			want: decision{Outcome: v1alpha1.ReasonRotationDeferred},
		},
		"disabled, and a new trigger after too many": {
			facts: upToDate(), edit: func(f *facts) {
				f.apiKey.Spec.Rotation.Trigger, f.record.TriggerTAT = "b", now.Add(10*time.Minute)
				f.apiKey.Spec.State = v1alpha1.ApiKeyDisabled
			},
			want: decision{Outcome: v1alpha1.ReasonRotationDeferred, Repair: true},
		},
		"a schedule that has elapsed after too many triggers": {
			facts: upToDate(), edit: func(f *facts) {
				f.apiKey.Spec.Rotation.EverySeconds, f.record.TriggerTAT = new(int32(3600)), now.Add(10*time.Minute)
			},
			want: decision{Issue: v1alpha1.RotationSchedule, Overlap: time.Hour, Generation: 3},
		},
		"another Merchant of the name after too many triggers": {
			facts: upToDate(), edit: func(f *facts) { f.merchantID, f.record.TriggerTAT = "merchant7654", now.Add(10*time.Minute) },
			want: decision{Issue: v1alpha1.RotationInitial, Generation: 3},
		},
		"a trigger that was taken away": {
			facts: upToDate(), edit: func(f *facts) { f.apiKey.Spec.Rotation.Trigger = "" },
			want: decision{Issue: v1alpha1.RotationTrigger, Overlap: time.Hour, Generation: 3},
		},
		"a new trigger without an overlap": {
			facts: upToDate(), edit: func(f *facts) {
				f.apiKey.Spec.Rotation = v1alpha1.Rotation{Trigger: "b", OverlapSeconds: new(int32(0))}
			},
			want: decision{Issue: v1alpha1.RotationTrigger, Generation: 3},
		},
		"a schedule that has elapsed": {
			facts: upToDate(), edit: func(f *facts) { f.apiKey.Spec.Rotation.EverySeconds = new(int32(3600)) },
			want: decision{Issue: v1alpha1.RotationSchedule, Overlap: time.Hour, Generation: 3},
		},
		"a schedule that has not": {
			facts: upToDate(), edit: func(f *facts) { f.apiKey.Spec.Rotation.EverySeconds = new(int32(7200)) },
		},
		"a delivery of the generation that is due": {
			facts: upToDate().with(deliveredSecret("till-key", 3)), edit: func(f *facts) { f.apiKey.Spec.Rotation.Trigger = "b" },
			want: decision{Issue: v1alpha1.RotationTrigger, Overlap: time.Hour, Generation: 3},
		},
		"a delivery of the generation that is due, under another name": {
			facts: upToDate().with(deliveredSecret("former", 3)), edit: func(f *facts) { f.apiKey.Spec.Rotation.Trigger = "b" },
			want: decision{Issue: v1alpha1.RotationTrigger, Overlap: time.Hour, Generation: 3},
		},

		// Externally generated keys.
		"an externally generated key, up to date": {facts: upToDate().external("mine")},
		"its digest changed": {
			facts: upToDate().external("mine"), edit: func(f *facts) { f.digest = &digest },
			want: decision{Issue: v1alpha1.RotationTrigger, Overlap: time.Hour, Generation: 3},
		},
		"its digest and the trigger changed": {
			facts: upToDate().external("mine"), edit: func(f *facts) { f.digest = &digest; f.apiKey.Spec.Rotation.Trigger = "b" },
			want: decision{Issue: v1alpha1.RotationTrigger, Overlap: time.Hour, Generation: 3},
		},
		"only the trigger changed": {
			facts: upToDate().external("mine"), edit: func(f *facts) { f.apiKey.Spec.Rotation.Trigger = "b"; f.apiKey.Generation++ },
			want: decision{Repair: true, Warnings: []string{reasonTriggerIgnored}},
		},
		"it has a schedule, which can make no key": {
			facts: upToDate().external("mine"), edit: func(f *facts) { f.apiKey.Spec.Rotation.EverySeconds = new(int32(300)) },
		},
		"it was rotated over HTTP": {
			facts: upToDate().external("mine"), edit: func(f *facts) { f.record.LastRotation.Cause = v1alpha1.RotationAPI },
		},
		"from own to external generation": {
			facts: upToDate(), edit: func(f *facts) { f.digest = &digest },
			want: decision{Issue: v1alpha1.RotationTrigger, Overlap: time.Hour, Generation: 3},
		},
		"from external to own generation": {
			facts: upToDate().external("mine"), edit: func(f *facts) { f.digest = nil },
			want: decision{Issue: v1alpha1.RotationTrigger, Overlap: time.Hour, Generation: 3},
		},
		"it was the former Merchant's": {
			facts: upToDate().external("mine"), edit: func(f *facts) { f.merchantID = "merchant7654" },
			want: decision{Outcome: v1alpha1.ReasonKeyDigestUsed},
		},
		"another one for another Merchant": {
			facts: upToDate().external("mine"), edit: func(f *facts) { f.merchantID = "merchant7654"; f.digest = &digest },
			want: decision{Issue: v1alpha1.RotationInitial, Generation: 3},
		},
		"its record is lost": {
			facts: upToDate().external("mine").lost(),
			want:  decision{Issue: v1alpha1.RotationRecovery, Generation: 3},
		},

		// Obstacles.
		"no Merchant": {
			facts: upToDate(), edit: func(f *facts) { f.merchantID = "" },
			want: decision{Outcome: v1alpha1.ReasonMerchantNotFound, Repair: true},
		},
		"no Merchant, and it is published": {
			facts: upToDate(), edit: func(f *facts) { f.merchantID, f.record.State = "", v1alpha1.ApiKeyDisabled },
			want: decision{Outcome: v1alpha1.ReasonMerchantNotFound},
		},
		"an overlap that has ended": {
			facts: upToDate(), edit: func(f *facts) {
				f.record.Previous = []published.Previous{{Digest: apikey.NewDigest("old"), ValidUntil: now.Add(-reconciler.EndedMargin)}}
			},
			want: decision{Repair: true},
		},
		"a Secret restored from a backup": {
			facts: upToDate(), edit: func(f *facts) { f.secret.CreationTimestamp = metav1.NewTime(now) },
			want: decision{Repair: true},
		},
		"a record that was seen to vanish, and is back": {
			facts: upToDate(), edit: func(f *facts) { f.seen = knownVersion{version{f.record.Order(), 2}, true} },
			want: decision{Repair: true},
		},
		"a record that is newer than one that was seen to vanish": {
			facts: upToDate(), edit: func(f *facts) { f.seen = knownVersion{version{f.record.Order(), 2}, true}; f.record.Revision++ },
		},
		"a Secret as old as its record, to a second": {
			facts: upToDate(), edit: func(f *facts) {
				f.secret.CreationTimestamp, f.record.Revision = metav1.NewTime(now), now.Add(-time.Second).UnixMilli()
			},
		},
		"no Merchant, a new trigger and a disabled key": {
			facts: upToDate(), edit: func(f *facts) {
				f.merchantID, f.apiKey.Spec.Rotation.Trigger, f.apiKey.Spec.State = "", "b", v1alpha1.ApiKeyDisabled
			},
			want: decision{Outcome: v1alpha1.ReasonMerchantNotFound, Repair: true},
		},
		"the record of another ApiKey": {
			facts: upToDate(), edit: func(f *facts) {
				f.record.Source.UID, f.apiKey.Spec.State, f.apiKey.Spec.Rotation.Trigger = "another", v1alpha1.ApiKeyDisabled, "b"
			},
			want: decision{Outcome: v1alpha1.ReasonSecretConflict, Warnings: []string{reasonKeyLost}},
		},
		"a new key, and its name is taken": {
			facts: upToDate().lost().with(), edit: func(f *facts) { f.targetTaken = true },
			want: decision{Outcome: v1alpha1.ReasonSecretConflict, Warnings: []string{reasonKeyLost}},
		},
		"no new key, and the name is taken": {
			facts: upToDate().with(), edit: func(f *facts) { f.targetTaken = true },
			want: decision{Warnings: []string{v1alpha1.ReasonNotDelivered}},
		},
		"a new externally generated key needs no name": {
			facts: upToDate().lost().with(), edit: func(f *facts) { f.digest = &digest },
			want: decision{Issue: v1alpha1.RotationRecovery, Generation: 3},
		},

		// What follows from the spec.
		"disabled": {
			facts: upToDate(), edit: func(f *facts) { f.apiKey.Spec.State = v1alpha1.ApiKeyDisabled },
			want: decision{Outcome: v1alpha1.ReasonDisabled, Repair: true},
		},
		"a label that is gone": {
			facts: upToDate(), edit: func(f *facts) { f.secret.Labels = nil },
			want: decision{Repair: true},
		},
	}.check(t)
}
