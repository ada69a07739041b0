package apikeys

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// facts are all that a decision about an ApiKey needs.
type facts struct {
	now    time.Time
	apiKey *v1alpha1.ApiKey
	// merchantID is of the Merchant the key charges for; empty: there is none, or it is being deleted.
	merchantID string
	// digest is spec.keyDigest; nil: keys are made here.
	digest *apikey.Digest
	// published is the Secret of the key id; nil: none.
	published *corev1.Secret
	// record is what the published Secret says; nil: nothing that can be used.
	record *published.KeyRecord
	// delivered are the Secrets that are this ApiKey's.
	delivered []delivered
	// targetTaken says that somebody else's Secret has the name the key is to be delivered under.
	// Only a live look tells, for the cache holds no such Secret.
	targetTaken bool
}

// ownRecord returns the record if it is this ApiKey's.
func (f facts) ownRecord() (published.KeyRecord, bool) {
	if f.record == nil || f.recordOfAnother() {
		return published.KeyRecord{}, false
	}
	return *f.record, true
}

func (f facts) recordOfAnother() bool { return f.record != nil && f.record.Source.UID != f.apiKey.UID }

// untouched reports whether there is no trace of an earlier pass over the ApiKey.
func (f facts) untouched() bool {
	return f.apiKey.Status.KeyID == "" && f.published == nil && len(f.delivered) == 0
}

// target is the name of the Secret the key is delivered in; empty: it is not delivered.
func (f facts) target() string {
	switch delivery := f.apiKey.Spec.Delivery; {
	case f.digest != nil:
		return ""
	case delivery != nil && delivery.SecretName != "":
		return delivery.SecretName
	default:
		return f.apiKey.Name + "-key"
	}
}

// secretNames are the names under which a Secret of the ApiKey's may be: the one that the spec gives,
// and those that were seen.
func (f facts) secretNames(seen []delivered) []string {
	var names []string
	if f.target() != "" {
		names = append(names, f.target())
	}
	for _, d := range seen {
		if d.Name != f.target() {
			names = append(names, d.Name)
		}
	}
	return names
}

// deliveredAs returns this ApiKey's Secret of that name; nil: none.
func (f facts) deliveredAs(name string) *delivered {
	for i := range f.delivered {
		if f.delivered[i].Name == name {
			return &f.delivered[i]
		}
	}
	return nil
}
