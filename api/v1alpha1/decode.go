package v1alpha1

import (
	"bytes"
	"encoding/json"
	"fmt"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// UnmarshalJSON leaves out what cannot be decoded: one error would fail the list of all ApiKeys. The CRD refuses such a status, but it may
// have been stored under another version of it.
func (s *ApiKeyStatus) UnmarshalJSON(data []byte) error {
	type status ApiKeyStatus
	return decodeStatus(data, (*status)(s))
}

// UnmarshalJSON leaves out what cannot be decoded, as that of ApiKeyStatus does.
func (s *MerchantStatus) UnmarshalJSON(data []byte) error {
	type status MerchantStatus
	return decodeStatus(data, (*status)(s))
}

// decodeStatus leaves out fields that cannot be decoded. Of the conditions it leaves out single ones: without any, an object counts as
// one that has lost its status, and is reconciled again after each write.
func decodeStatus[T any](data []byte, status *T) error {
	before := *status
	if utiljson.Unmarshal(data, status) == nil {
		return nil
	}
	*status = before
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil //nolint:nilerr // it is no object
	}
	var conditions []json.RawMessage
	if err := json.Unmarshal(fields["conditions"], &conditions); err == nil {
		var decodable [][]byte
		for _, condition := range conditions {
			if decodes[T]("conditions", fmt.Appendf(nil, "[%s]", condition)) {
				decodable = append(decodable, condition)
			}
		}
		fields["conditions"] = fmt.Appendf(nil, "[%s]", bytes.Join(decodable, []byte(",")))
	}
	for name, value := range fields {
		if !decodes[T](name, value) {
			delete(fields, name)
		}
	}
	decodable, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return utiljson.Unmarshal(decodable, status)
}

func decodes[T any](name string, value json.RawMessage) bool {
	field, err := json.Marshal(map[string]json.RawMessage{name: value})
	return err == nil && utiljson.Unmarshal(field, new(T)) == nil
}
