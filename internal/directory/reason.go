package directory

import (
	"errors"

	"github.com/merchant-operator/merchant-operator/api/apikey"
)

// Reasons of a refused key. They label a metric and a log line, and kubectl merchant explains them; callers of the API never see them.
const (
	ReasonMalformed         = "malformed"
	ReasonUnknown           = "unknown"
	ReasonRotated           = "rotated" // Identify succeeds with a Principal that is not live
	ReasonExpired           = "expired"
	ReasonDisabled          = "disabled"
	ReasonMerchantMissing   = "merchant_missing"
	ReasonAddressNotAllowed = "address_not_allowed" // Merchant.Allows
	ReasonDigestClaimed     = "digest_claimed"
	ReasonWrongMode         = "wrong_mode"
)

// ReasonOf returns why Identify refuses a presented key.
func ReasonOf(presented string, err error) string {
	switch {
	case errors.Is(err, ErrMerchantMissing):
		return ReasonMerchantMissing
	case errors.Is(err, ErrDisabled):
		return ReasonDisabled
	case errors.Is(err, ErrExpired):
		return ReasonExpired
	case errors.Is(err, ErrDigestClaimed):
		return ReasonDigestClaimed
	case errors.Is(err, ErrWrongMode):
		return ReasonWrongMode
	case apikey.Mistyped(presented):
		return ReasonMalformed
	}
	return ReasonUnknown
}
