package merchants

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
)

// decision is what a plan comes to, apart from the ConfigMap.
type decision struct {
	Sign    signingAction
	Deliver bool
	Remove  []string
	Outcome string // empty: Ready
	Next    time.Duration
}

func decided(t *testing.T, f facts) decision {
	t.Helper()
	p, err := decide(f)
	if err != nil {
		t.Fatal(err)
	}
	d := decision{Sign: p.sign, Deliver: p.deliver}
	for _, secret := range p.remove {
		d.Remove = append(d.Remove, secret.Name)
	}
	outcome := outcomeFor(f)
	if !outcome.IsReady() {
		d.Outcome = outcome.Reason
	}
	d.Next = nextCheck(f, outcome)
	if p.idle() != (p.publish == nil && d.Sign == "" && !d.Deliver && d.Remove == nil) {
		t.Errorf("idle is %t for %+v", p.idle(), d)
	}
	return d
}

func TestSigningSecret(t *testing.T) {
	for desc, tc := range map[string]struct {
		edit func(*facts)
		want decision
	}{
		"at rest": {edit: func(*facts) {}},
		"the first": {
			edit: func(f *facts) {
				f.signing, f.record, f.target, f.delivered, f.merchant.Status = nil, nil, nil, nil, v1alpha1.MerchantStatus{}
			},
			want: decision{Sign: issueSigning, Deliver: true},
		},
		"lost, and the status says that there was one": {
			edit: func(f *facts) { f.signing, f.record, f.target, f.delivered = nil, nil, nil, nil },
			want: decision{Sign: reissueSigning, Deliver: true},
		},
		"lost, and the copy says that there was one": {
			edit: func(f *facts) { f.signing, f.record, f.merchant.Status = nil, nil, v1alpha1.MerchantStatus{} },
			want: decision{Sign: reissueSigning, Deliver: true},
		},
		"unreadable": {
			edit: func(f *facts) { f.record = nil },
			want: decision{Sign: reissueSigning, Deliver: true},
		},
		"lost while the copy's name is taken": {
			edit: func(f *facts) { f.record, f.target, f.targetTaken = nil, nil, true },
			want: decision{Sign: reissueSigning, Outcome: v1alpha1.ReasonSecretConflict, Next: time.Minute},
		},
		"a lost status rotates nothing": {edit: func(f *facts) { f.merchant.Status = v1alpha1.MerchantStatus{} }},
		"another trigger": {
			edit: func(f *facts) { f.merchant.Spec.Webhook.RotationTrigger = "b" },
			want: decision{Sign: rotateSigning, Deliver: true},
		},
		"another trigger while the copy's name is taken": {
			edit: func(f *facts) { f.merchant.Spec.Webhook.RotationTrigger, f.target, f.targetTaken = "b", nil, true },
			want: decision{Outcome: v1alpha1.ReasonSecretConflict, Next: time.Minute},
		},
		"another trigger after too many": {
			edit: func(f *facts) {
				f.merchant.Spec.Webhook.RotationTrigger, f.record.TriggerTAT = "b", now.Add(10*time.Minute)
				secret, _ := published.EncodeWebhook(f.namespace, *f.record)
				f.signing.Data = secret.Data
			},
			want: decision{Outcome: v1alpha1.ReasonRotationDeferred, Next: time.Minute},
		},
		"somebody took the label": {
			edit: func(f *facts) { f.signing.Labels = nil },
			want: decision{Sign: repairSigning},
		},
		"somebody added data": {
			edit: func(f *facts) { f.signing.Data["more"] = nil },
			want: decision{Sign: repairSigning},
		},
		"somebody added a label": {edit: func(f *facts) { f.signing.Labels["team"] = "payments" }},

		"the webhook was just removed": {
			edit: func(f *facts) { f.merchant.Spec.Webhook = nil },
			want: decision{Remove: []string{"coffee-webhook"}},
		},
		"no webhook for a day": {
			edit: func(f *facts) {
				f.merchant.Spec.Webhook = nil
				f.publishedWebhook = &published.Webhook{RemovedAt: now.Add(-published.WebhookGrace)}
			},
			want: decision{Sign: withdrawSigning, Remove: []string{"coffee-webhook"}},
		},
		"no webhook any more, and the secret is gone": {
			edit: func(f *facts) { f.merchant.Spec.Webhook, f.signing, f.record = nil, nil, nil },
			want: decision{Remove: []string{"coffee-webhook"}},
		},
		"never a webhook": {
			edit: func(f *facts) { f.merchant.Spec.Webhook, f.signing, f.record, f.delivered = nil, nil, nil, nil },
		},

		"the copy is gone": {
			edit: func(f *facts) { f.target, f.delivered = nil, nil },
			want: decision{Deliver: true},
		},
		"the copy was edited": {
			edit: func(f *facts) { f.target.Data["secret"] = []byte("x") },
			want: decision{Deliver: true},
		},
		"the copy lost its label": {
			edit: func(f *facts) { f.target.Labels, f.delivered = nil, nil },
			want: decision{Deliver: true},
		},
		"the copy was annotated": {edit: func(f *facts) { f.target.Annotations = map[string]string{"a": "b"} }},
		"the copy has another name by now": {
			edit: func(f *facts) { *f = copied(*f, "former") },
			want: decision{Deliver: true},
		},
		"the copy is there under both names": {
			edit: func(f *facts) {
				former := copied(*f, "former")
				f.delivered = append(f.delivered, former.delivered...)
			},
			want: decision{Remove: []string{"former"}},
		},
		"the new name is taken": {
			edit: func(f *facts) { *f = copied(*f, "former"); f.targetTaken = true },
			want: decision{Outcome: v1alpha1.ReasonSecretConflict, Next: time.Minute},
		},
	} {
		t.Run(desc, func(t *testing.T) {
			f := upToDate(t)
			tc.edit(&f)
			if diff := cmp.Diff(tc.want, decided(t, f)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSigningSecret_RetiredEnds(t *testing.T) {
	f := upToDate(t)
	old := f.record.Current.Secret
	f.merchant.Spec.Webhook.RotationTrigger = "b"
	p, err := decide(f)
	if err != nil {
		t.Fatal(err)
	}
	rotated := p.signingRecord()
	if diff := cmp.Diff([]published.RetiredSecret{{Secret: old, ValidUntil: now.Add(24 * time.Hour)}}, rotated.Retired); diff != "" {
		t.Fatalf("retired by the rotation (-want +got):\n%s", diff)
	}
	f = copied(signedWith(t, f, rotated), "coffee-webhook")
	for _, tc := range []struct {
		after time.Duration
		want  decision
	}{
		{0, decision{Next: 24*time.Hour + reconciler.EndedMargin}},
		{24*time.Hour + reconciler.EndedMargin - 1, decision{Next: 1}},
		{24*time.Hour + reconciler.EndedMargin, decision{Sign: repairSigning}},
	} {
		f.now = now.Add(tc.after)
		if diff := cmp.Diff(tc.want, decided(t, f)); diff != "" {
			t.Errorf("%s after the rotation (-want +got):\n%s", tc.after, diff)
		}
	}
	f.clockWrong = true
	if diff := cmp.Diff(decision{Next: reconciler.ClockRecheck}, decided(t, f)); diff != "" {
		t.Errorf("with a wrong clock (-want +got):\n%s", diff)
	}
	f.clockWrong = false
	p, err = decide(f)
	if err != nil {
		t.Fatal(err)
	}
	if repaired := p.signingRecord(); len(repaired.Retired) != 0 || !repaired.Current.Secret.Equal(rotated.Current.Secret) {
		t.Errorf("a day later the record has %d retired secrets, and its current one changed: %t",
			len(repaired.Retired), !repaired.Current.Secret.Equal(rotated.Current.Secret))
	}
}

func TestStatus_WebhookSecretName(t *testing.T) {
	for desc, tc := range map[string]struct {
		edit func(*facts)
		want string
	}{
		"where it is delivered":        {func(*facts) {}, "coffee-webhook"},
		"where it was, while it moves": {func(f *facts) { f.target, f.merchant.Spec.Webhook.SecretName = nil, "taken" }, "coffee-webhook"},
		"nowhere, without a webhook":   {func(f *facts) { f.merchant.Spec.Webhook = nil }, ""},
	} {
		f := upToDate(t)
		tc.edit(&f)
		if got := newStatus(f, conditions.Ready("")).WebhookSecretName; got != tc.want {
			t.Errorf("%s: %q, want %q", desc, got, tc.want)
		}
	}
}

// A status that holds only what the dispatcher reports has lost all that the operator reported.
func TestStatus_DispatcherCondition(t *testing.T) {
	m := merchant()
	m.Status.Conditions = conditions.After(nil, conditions.Ready("reported").Notices(), 1, now)
	m.Status.Conditions = append(m.Status.Conditions, m.Status.Conditions[0])
	m.Status.Conditions[1].Type = v1alpha1.WebhookHealthyCondition
	if got := statusConditions(m); len(got) != 1 || got[0].Type != v1alpha1.ReadyCondition {
		t.Errorf("the operator's conditions are %v", got)
	}
	if len(m.Status.Conditions) != 2 || m.Status.Conditions[1].Type != v1alpha1.WebhookHealthyCondition {
		t.Errorf("reading the conditions changed them: %v", m.Status.Conditions)
	}
}
