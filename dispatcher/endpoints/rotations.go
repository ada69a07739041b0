package endpoints

import "github.com/merchant-operator/merchant-operator/api/published"

// rotations passes on which keys were rotated. A key may be heard of before its merchant, whose name
// the event needs; it waits until then. The lock of the index guards it.
type rotations struct {
	tell func(key published.KeyRecord, merchantName string)
	// waiting keys by merchant id and by the name of the key's published object.
	waiting map[string]map[string]published.KeyRecord
}

func (r rotations) keySeen(key published.KeyRecord, merchantName string, merchantKnown bool) {
	name := published.KeyName(key.KeyID)
	delete(r.waiting[key.MerchantID], name)
	switch {
	case key.Generation < 2: // issued, and never rotated
	case merchantKnown:
		r.tell(key, merchantName)
	default:
		if r.waiting[key.MerchantID] == nil {
			r.waiting[key.MerchantID] = map[string]published.KeyRecord{}
		}
		r.waiting[key.MerchantID][name] = key
	}
}

func (r rotations) merchantSeen(merchant published.MerchantRecord) {
	for _, key := range r.waiting[merchant.MerchantID] {
		r.tell(key, merchant.DisplayName)
	}
	delete(r.waiting, merchant.MerchantID)
}

// keyGone forgets a key that was still waiting.
func (r rotations) keyGone(name string) {
	for _, keys := range r.waiting {
		delete(keys, name)
	}
}

// names are those of the keys still waiting: nothing is kept of the others.
func (r rotations) names() []string {
	var names []string
	for _, keys := range r.waiting {
		for name := range keys {
			names = append(names, name)
		}
	}
	return names
}
