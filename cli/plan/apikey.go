package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
)

// keyEffects returns the effects of a change of an ApiKey.
func (s State) keyEffects(o Object[v1alpha1.ApiKey]) []Effect {
	if o.Refused != "" {
		o.After = o.Corrected
	}
	switch {
	case o.Unbuilt != "" || o.After == nil && (o.Before == nil || o.Refused != ""):
		return nil
	case o.Deleted():
		return []Effect{keyDeleted(o.Before)}
	case o.Before == nil:
		return slices.Concat(s.merchantMissing(o), s.digestShared(o), s.bornExpired(o))
	}
	var effects []Effect
	if !o.Before.DeletionTimestamp.IsZero() {
		effects = append(effects, Effect{Type: "Deleting", Severity: Ends, Message: "This ApiKey is being deleted; applied again after that, it gets another key."})
	}
	effects = slices.Concat(effects, s.merchantMissing(o))
	change := keyChange{before: o.Before, after: o.After, now: s.Now}
	if o.Before.Spec.KeyDigest != o.After.Spec.KeyDigest {
		effects = append(effects, s.digestShared(o)...)
	}
	return slices.Concat(effects, change.state(), change.expiry(), change.permissions(), change.allowlist(), change.rotation(), change.delivery(), change.unfinished())
}

// keyChange is an ApiKey that stays.
type keyChange struct {
	before, after *v1alpha1.ApiKey
	now           time.Time
}

func keyDeleted(key *v1alpha1.ApiKey) Effect {
	e := Effect{
		Type: "KeyEnds", Severity: Ends, LastUsedTime: key.LastUse(),
		Message: "The key gets 401 permanently: another ApiKey of this name has another key." + lastUse(key),
	}
	switch secret := key.DeliverySecretName(); {
	case secret != "":
		e.Message += " Secret " + quoted(secret) + " is deleted."
	case key.Spec.KeyDigest != "":
		e.Message += " For 90 days only an ApiKey of this namespace and name can have its digest."
	}
	return e
}

// merchantMissing: the ApiKey has no Merchant, or loses it.
func (s State) merchantMissing(o Object[v1alpha1.ApiKey]) []Effect {
	name := o.After.Spec.MerchantRef.Name
	i := slices.IndexFunc(s.Merchants, func(m Object[v1alpha1.Merchant]) bool { return m.Namespace == o.Namespace && m.Name == name })
	if i >= 0 && s.Merchants[i].After != nil || o.Before != nil && (i < 0 || s.Merchants[i].Before == nil) {
		return nil // it has one, or had none before
	}
	return []Effect{{
		Type: "MerchantMissing", Severity: May,
		Message: "There is no Merchant " + quoted(name) + " in this namespace: the ApiKey is not ready until it exists.",
	}}
}

// digestShared: a digest has one claim, which only its owner's namespace shows.
func (s State) digestShared(o Object[v1alpha1.ApiKey]) []Effect {
	digest := o.After.Spec.KeyDigest
	others := slices.DeleteFunc(slices.Clone(s.Digests[digest]), func(name string) bool { return name == o.Namespace+"/"+o.Name })
	if digest == "" || len(others) == 0 {
		return nil
	}
	return []Effect{{
		Type: "KeyDigestClaimed", Severity: May,
		Message: "Another ApiKey has this spec.keyDigest: " + list(others) + ". Only the first one that claims it works; the other one is Stalled.",
	}}
}

func (s State) bornExpired(o Object[v1alpha1.ApiKey]) []Effect {
	if end := o.After.Spec.ExpiresAt; end == nil || s.Now.Before(end.Time) {
		return nil
	}
	return []Effect{{Type: "KeyExpired", Severity: May, Message: "spec.expiresAt is past: the key gets 401."}}
}

// accepted reports whether somebody may have a key that works, as long as the Merchant is Active.
func (c keyChange) accepted() bool {
	return c.before.Spec.State != v1alpha1.ApiKeyDisabled && (c.before.Spec.ExpiresAt == nil || c.now.Before(c.before.Spec.ExpiresAt.Time)) &&
		(c.before.Status.Prefix != "" || c.before.Spec.KeyDigest != "" || len(c.before.Status.PreviousKeys) > 0)
}

// ending is Ends for a key that works now.
func (c keyChange) ending() Severity {
	if c.accepted() {
		return Ends
	}
	return Note
}

func (c keyChange) state() []Effect {
	before, after := c.before.Spec.State, c.after.Spec.State
	switch {
	case before == after:
		return nil
	case after == v1alpha1.ApiKeyDisabled:
		return []Effect{{
			Type: "KeyDisabled", Severity: c.ending(), LastUsedTime: c.before.LastUse(),
			Message: "All keys of this ApiKey get 401 until its state is Active again." + lastUse(c.before),
		}}
	}
	return []Effect{{Type: "KeyEnabled", Severity: Note, Message: "The same key works again."}}
}

func (c keyChange) expiry() []Effect {
	before, after := c.before.Spec.ExpiresAt, c.after.Spec.ExpiresAt
	switch {
	case after == nil && before == nil, after != nil && before != nil && after.Equal(before):
		return nil
	case after == nil || before != nil && before.Before(after):
		return []Effect{{Type: "KeyExpiresLater", Severity: Note, Message: "The key expires later, or never. An expired key works again."}}
	case !c.now.Before(after.Time):
		return []Effect{{
			Type: "KeyExpires", Severity: c.ending(), LastUsedTime: c.before.LastUse(),
			Message: "spec.expiresAt is past: all keys of this ApiKey get 401 at once." + lastUse(c.before),
		}}
	}
	instead := "never"
	if before != nil {
		instead = "at " + clock(before.Time)
	}
	return []Effect{{
		Type: "KeyExpires", Severity: c.ending(), LastUsedTime: c.before.LastUse(),
		Message: fmt.Sprintf("All keys of this ApiKey get 401 at %s instead of %s.%s", clock(after.Time), instead, lastUse(c.before)),
	}}
}

// permissions are what the key may do from now on.
func (c keyChange) permissions() []Effect {
	before, after := c.before.Spec.Permissions, c.after.Spec.Permissions
	if before == nil {
		before = v1alpha1.ImpliedPermissions()
	}
	if after == nil {
		after = v1alpha1.ImpliedPermissions()
	}
	var lost, won []string
	for _, permission := range v1alpha1.Permissions() {
		switch had, has := slices.Contains(before, permission), slices.Contains(after, permission); {
		case had && !has:
			lost = append(lost, string(permission))
		case has && !had:
			won = append(won, string(permission))
		}
	}
	var effects []Effect
	if len(lost) > 0 {
		effects = append(effects, Effect{
			Type: "PermissionsEnd", Severity: c.ending(), LastUsedTime: c.before.Status.LastUsedTime,
			Message: "Requests of this key that need one of these permissions get 403: " + strings.Join(lost, ", ") + "." + lastUse(c.before),
		})
	}
	if len(won) > 0 {
		effects = append(effects, Effect{Type: "PermissionsGranted", Severity: Note, Message: "The key gets these permissions: " + strings.Join(won, ", ") + "."})
	}
	return effects
}

// allowlist is from where the key is accepted, besides what its Merchant allows.
func (c keyChange) allowlist() []Effect {
	before, beforeErr := allowlist.Parse(c.before.Spec.IPAllowlist)
	after, afterErr := allowlist.Parse(c.after.Spec.IPAllowlist)
	switch {
	case beforeErr != nil || afterErr != nil:
		return nil // the API server checks the blocks
	case after.Covers(before) && before.Covers(after):
		return nil
	case after.Covers(before):
		return []Effect{{Type: "AllowlistWidens", Severity: Note, Message: "The key is accepted from more addresses, if its Merchant allows them."}}
	}
	var blocks []string
	for _, block := range after {
		blocks = append(blocks, block.String())
	}
	return []Effect{{
		Type: "AllowlistNarrows", Severity: May, LastUsedTime: c.before.Status.LastUsedTime,
		Message: "The key gets 401 from addresses that are not on its new list, " + list(blocks) + ", unless the Merchant has ipAllowlistMode Report." + lastUse(c.before),
	}}
}

// rotation is what the operator replaces, by its own rules (controllers/apikeys/rotation.go).
func (c keyChange) rotation() []Effect {
	if c.before.Status.KeyGeneration == 0 { // no key was issued yet
		return nil
	}
	digest := c.after.Spec.KeyDigest
	generated := c.after.DeliverySecretName() != ""
	switch {
	case digest != c.before.Spec.KeyDigest:
		return c.rotates("spec.keyDigest changes")
	case generated && c.before.DeliverySecretName() == "" && c.before.Status.Prefix == "":
		return []Effect{{Type: "KeyIssued", Severity: Note, Message: "Nobody has a key yet; one is delivered in Secret " + quoted(c.after.DeliverySecretName()) + "."}}
	case generated && c.after.Spec.Rotation.Trigger != c.before.Status.ObservedTrigger:
		return c.rotates("spec.rotation.trigger changes")
	case generated:
		return c.schedule()
	}
	return nil
}

func (c keyChange) rotates(because string) []Effect {
	overlap := seconds(c.after.Spec.Rotation.OverlapSeconds)
	end := "at once, with all older keys"
	if overlap > 0 {
		end = span(overlap) + " after that"
	}
	key := "The key"
	if prefix := shown(c.before.Status.Prefix); prefix != "" {
		key += " " + quoted(prefix)
	}
	next := "The new key is the one of spec.keyDigest."
	if secret := c.after.DeliverySecretName(); secret != "" {
		next = "The new key is delivered in Secret " + quoted(secret) + "."
	}
	effects := []Effect{{
		Type: "KeyRotates", Severity: c.ending(), LastUsedTime: c.before.Status.LastUsedTime,
		Message: fmt.Sprintf("%s: %s is replaced and gets 401 %s. %s%s", because, key, end, next, usedAt(c.before.Status.LastUsedTime)),
	}}
	return append(effects, c.overlaps(overlap)...)
}

// overlaps are old keys that end earlier because of a rotation.
func (c keyChange) overlaps(overlap time.Duration) (effects []Effect) {
	cut := 0
	var used *metav1.Time
	for i, old := range c.before.Status.PreviousKeys {
		dropped := overlap > 0 && i >= published.MaxPrevious-1
		if !c.now.Before(old.ValidUntil.Time) || !dropped && !c.now.Add(overlap).Before(old.ValidUntil.Time) {
			continue
		}
		cut++
		if used == nil || used.Before(old.LastUsedTime) {
			used = old.LastUsedTime
		}
	}
	if cut == 0 {
		return nil
	}
	end := "at once"
	if overlap > 0 {
		end = span(overlap) + " after the rotation at the latest"
	}
	latest := c.before.Status.PreviousKeys[0].ValidUntil
	message := fmt.Sprintf("The overlap of %s ends %s; now it ends at %s.", count(cut, "old key"), end, clock(latest.Time))
	return []Effect{{Type: "OverlapCut", Severity: c.ending(), LastUsedTime: used, Message: message + c.oldKeyUse(used)}}
}

// oldKeyUse is what the operator says of the use of old keys. Silence is one thing, and no evidence another.
func (c keyChange) oldKeyUse(used *metav1.Time) string {
	said := meta.FindStatusCondition(c.before.Status.Conditions, v1alpha1.OldKeyInUseCondition)
	switch {
	case said != nil && said.Status == metav1.ConditionTrue:
		return usedAt(used) + " It is still in use."
	case said != nil && said.Status == metav1.ConditionFalse:
		return usedAt(used) + " No old key was used within two hours."
	}
	return usedAt(used) + " It is unknown whether an old key is still used."
}

// schedule: an interval that has elapsed rotates at once, and up to a tenth of it earlier. Nobody is asked again before a rotation by schedule, so
// a shorter overlap ends the key that is replaced then.
func (c keyChange) schedule() []Effect {
	every, overlap := seconds(c.after.Spec.Rotation.EverySeconds), seconds(c.after.Spec.Rotation.OverlapSeconds)
	issued := c.before.Status.LastRotation
	rescheduled := every != seconds(c.before.Spec.Rotation.EverySeconds)
	shorter := overlap < seconds(c.before.Spec.Rotation.OverlapSeconds)
	if every == 0 || issued == nil || !rescheduled && !shorter {
		return nil
	}
	due := issued.Time.Add(every)
	switch {
	case !rescheduled:
		return []Effect{c.overlapShortens(overlap, due)}
	case !c.now.Before(due):
		return c.rotates("spec.rotation.everySeconds has elapsed")
	case !c.now.Before(due.Add(-every / 10)):
		effects := c.rotates("spec.rotation.everySeconds elapses by " + clock(due))
		for i := range effects {
			if effects[i].Severity == Ends {
				effects[i].Severity = May
			}
		}
		return effects
	}
	effects := []Effect{{Type: "RotationScheduled", Severity: Note, Message: "The schedule replaces the key by " + clock(due) + ", up to a tenth of the interval earlier."}}
	if shorter || overlap == 0 {
		effects = append(effects, c.overlapShortens(overlap, due))
	}
	return effects
}

// overlapShortens: a key that the schedule replaces gets 401 earlier than now, or at once.
func (c keyChange) overlapShortens(overlap time.Duration, due time.Time) Effect {
	severity := c.ending()
	if severity == Ends {
		severity = May // what has taken over the new key by then is unknown
	}
	end := "at once"
	if overlap > 0 {
		end = span(overlap) + " later"
	}
	return Effect{
		Type: "OverlapShortens", Severity: severity, LastUsedTime: c.before.Status.LastUsedTime,
		Message: fmt.Sprintf("The key that the schedule replaces, by %s, gets 401 %s, unless its clients have the new one by then.%s", clock(due), end, usedAt(c.before.Status.LastUsedTime)),
	}
}

// delivery is what happens to the delivered Secret.
func (c keyChange) delivery() []Effect {
	from, to := c.before.DeliverySecretName(), c.after.DeliverySecretName()
	held := meta.IsStatusConditionTrue(c.before.Status.Conditions, v1alpha1.DeliveredCondition)
	switch {
	case from == "" || !held:
		return nil
	case to == "":
		return []Effect{{Type: "SecretDeleted", Severity: Ends, Message: "Secret " + quoted(from) + " is deleted: keys are not delivered any more."}}
	case from != to:
		return []Effect{{Type: "SecretDeleted", Severity: Ends, Message: "Secret " + quoted(from) + " is deleted: the key moves to Secret " + quoted(to) + "."}}
	}
	before, after := retention(c.before), retention(c.after)
	if after == 0 || before != 0 && before <= after || c.before.Status.LastRotation == nil {
		return nil
	}
	end := c.before.Status.LastRotation.Time.Add(after)
	return []Effect{{
		Type: "SecretDeleted", Severity: Ends,
		Message: "Secret " + quoted(to) + " is deleted by spec.delivery.retainSeconds at " + clock(end) + ", at once if that is past. The key stays valid.",
	}}
}

// unfinished: the operator has not done what the present spec says, so status shows less.
func (c keyChange) unfinished() []Effect {
	if c.before.Status.ObservedGeneration != c.before.Generation {
		return []Effect{{Type: "StatusBehind", Severity: May, Message: "The operator has not handled the present spec yet, so this plan is of an older status."}}
	}
	stuck := []string{
		v1alpha1.ReasonSecretConflict, v1alpha1.ReasonKeyDigestUsed, v1alpha1.ReasonKeyDigestClaimed, v1alpha1.ReasonTooManyKeyDigests, v1alpha1.ReasonRotationDeferred,
		v1alpha1.ReasonNewerVersion, v1alpha1.ReasonMerchantNotFound,
	}
	if ready := meta.FindStatusCondition(c.before.Status.Conditions, v1alpha1.ReadyCondition); ready != nil && slices.Contains(stuck, ready.Reason) {
		return []Effect{{Type: "NotReady", Severity: Note, Message: "The ApiKey is not ready (" + ready.Reason + "), so a rotation waits until that is fixed."}}
	}
	return nil
}

func retention(key *v1alpha1.ApiKey) time.Duration {
	if key.Spec.Delivery == nil {
		return 0
	}
	return seconds(key.Spec.Delivery.RetainSeconds)
}

func seconds(field *int32) time.Duration {
	if field == nil {
		return 0
	}
	return time.Duration(*field) * time.Second
}

// span is a time like 15m or 24h.
func span(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// lastUse says when any key of the ApiKey was used.
func lastUse(key *v1alpha1.ApiKey) string { return usedAt(key.LastUse()) }

func usedAt(at *metav1.Time) string {
	if at == nil {
		return " No use is known."
	}
	return " Last used at " + clock(at.Time) + "."
}
