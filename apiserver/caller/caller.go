package caller

import (
	"net/netip"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
)

// Caller is who sent a request, as far as the directory knows. The store makes the final decision about the key.
type Caller struct {
	directory.Principal

	// blocked: the allowlist of the merchant or of the key does not allow the address.
	blocked bool
	// needs is the permission for the request.
	needs v1alpha1.Permission
	// currentOnly: Accepted and Live are about the current key only.
	currentOnly bool
	// expired: by this replica's clock.
	expired bool
}

// Admission is what the store needs to decide about the key, and to charge the merchant's limit.
func (c Caller) Admission() admission.Request {
	limit := c.RateLimit()
	return admission.Request{
		MerchantID: c.Merchant.ID,
		TestMode:   c.TestMode,
		KeyID:      c.KeyID,
		Order:      c.Order,
		Digest:     c.Digest,
		Accepted:   c.Accepted,
		Until:      c.Until,
		Inactive:   !c.Merchant.Active(),
		Forbidden:  !c.Permissions.Has(c.needs),
		Limit:      ratelimit.Policy{RequestsPerSecond: int64(limit.RequestsPerSecond), Burst: int64(limit.Burst)},
	}
}

// testRateLimit is the most that all test keys of a merchant get together: what they create is kept for a day, and takes Redis and its
// processor from live traffic.
var testRateLimit = v1alpha1.RateLimit{RequestsPerSecond: 5, Burst: 100}

// RateLimit is that of the merchant, in test mode no more than testRateLimit.
func (c Caller) RateLimit() v1alpha1.RateLimit {
	limit := c.Merchant.RateLimit
	if c.TestMode {
		limit.RequestsPerSecond = min(limit.RequestsPerSecond, testRateLimit.RequestsPerSecond)
		limit.Burst = min(limit.Burst, testRateLimit.Burst)
	}
	return limit
}

// admissionError is why the store refuses a request whose key it accepts; nil: it does not.
func (c Caller) admissionError() error {
	switch {
	case !c.Merchant.Active():
		return admission.ErrMerchantNotActive
	case !c.Permissions.Has(c.needs):
		return admission.ErrForbidden
	}
	return nil
}

// acceptedBy reports, as admission.lua does, whether the presented key is accepted at the time now of Redis.
func (c Caller) acceptedBy(override keystate.Override, now time.Time) bool {
	if override.Order.Compare(c.Order) < 0 { // or there is none
		return c.Accepted && (c.Until.IsZero() || now.Before(c.Until))
	}
	if c.currentOnly {
		return override.AcceptsOnly(c.Digest, now)
	}
	return override.Accepts(c.Digest, now)
}

// PermittedBy returns an error unless the published record, which may be newer than this replica's directory, permits a request from an address.
func (c Caller) PermittedBy(record published.KeyRecord, needs v1alpha1.Permission, address netip.Addr) error {
	allowed, err := allowlist.Parse(record.IPAllowlist)
	switch {
	case err != nil:
		return err
	case !c.Merchant.ReportOnly && !allowed.Allows(address):
		return UnauthorizedError{directory.ReasonAddressNotAllowed}
	case !directory.NewPermissions(record.Permissions).Has(needs):
		return PermissionError{needs}
	}
	return nil
}

// blockedAddress is for the count of good keys from addresses that an allowlist does not have. What only the list of the key blocks is counted
// apart: no change of the merchant's list would allow it.
func (c Caller) blockedAddress(address netip.Addr) web.BlockedAddress {
	if !c.blocked || !c.Live || !c.Merchant.Active() {
		return web.BlockedAddress{}
	}
	blocked := web.BlockedAddress{MerchantID: c.Merchant.ID, Block: c.Merchant.Allowlist.Block(address), ReportOnly: c.Merchant.ReportOnly}
	if c.Merchant.Allowlist.Allows(address) {
		blocked.Block = allowlist.KeyBlock(address, c.KeyID)
	}
	return blocked
}
