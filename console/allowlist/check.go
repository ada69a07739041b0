package allowlist

import (
	"fmt"
	"strings"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
)

// Check is the allowlist with the answer to "would this address pass?".
type Check struct {
	Entries []string
	// ReportOnly: requests from other addresses are counted, not refused.
	ReportOnly bool
	// Own is the viewer's address as this server sees it; empty: unknown. OwnPasses is about it.
	Own       string
	OwnPasses bool
	// Asked is what the viewer has entered. Answer is about it. RefusedKeys are those whose own list does not have it, by name.
	Asked, Answer string
	RefusedKeys   []string
}

// Check returns the allowlist of the Merchant, and whether the address that the viewer asks about is on that list and on the lists of the keys.
func (h *Handler) Check(r *web.Request, keys []*v1alpha1.ApiKey) (Check, error) {
	check := Check{
		Asked: strings.Trim(r.URL.Query().Get("address"), " \t"), ReportOnly: r.Merchant.Spec.IPAllowlistMode == v1alpha1.IPAllowlistReport,
	}
	for _, entry := range r.Merchant.Spec.IPAllowlist {
		check.Entries = append(check.Entries, string(entry))
	}
	list, err := allowlist.Parse(r.Merchant.Spec.IPAllowlist)
	if err != nil {
		return check, fmt.Errorf("read the allowlist: %w", err)
	}
	if own, err := h.Clients.Resolve(r.RemoteAddr, r.Header.Values("X-Forwarded-For")); err == nil {
		check.Own, check.OwnPasses = own.String(), list.Allows(own)
	}
	if check.Asked == "" {
		return check, nil
	}
	words := h.Pages.Words(r.Context())
	passes, badAddress := list.Test(check.Asked)
	switch {
	case badAddress != nil:
		check.Answer = words.Text("allowlist.answer.wrong")
	case passes:
		check.Answer = words.Text("allowlist.answer.passes")
	case check.ReportOnly:
		check.Answer = words.Text("allowlist.answer.reported")
	default:
		check.Answer = words.Text("allowlist.answer.refused")
	}
	if badAddress == nil && (passes || check.ReportOnly) {
		check.RefusedKeys, err = refusedKeys(keys, check.Asked)
	}
	return check, err
}

// refusedKeys names the keys whose own list does not have an address.
func refusedKeys(keys []*v1alpha1.ApiKey, address string) (names []string, err error) {
	for _, key := range keys {
		list, err := allowlist.Parse(key.Spec.IPAllowlist)
		if err != nil {
			return nil, fmt.Errorf("read the allowlist of a key: %w", err)
		}
		if allowed, err := list.Test(address); err == nil && !allowed {
			names = append(names, key.Name)
		}
	}
	return names, nil
}
