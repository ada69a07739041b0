package published

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestReadableGeneration(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		want int64
	}{
		"a record whose rest is broken":   {`{"version":1,"keyID":"?","generation":7}`, 7},
		"a record of a newer version":     {`{"version":99,"generation":7,"current":"new shape"}`, 7},
		"no record":                       {``, 0},
		"no JSON":                         {`generation: 7`, 0},
		"no generation":                   {`{}`, 0},
		"a generation that is no number":  {`{"generation":"7"}`, 0},
		"a negative generation":           {`{"generation":-7}`, 0},
		"a generation none can count on":  {`{"generation":9223372036854775807}`, 0},
		"a generation beyond any integer": {`{"generation":1e30}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{Data: map[string][]byte{"record.json": []byte(c.data)}}
			if got := ReadableGeneration(secret); got != c.want {
				t.Errorf("ReadableGeneration(%s) = %d, want %d", c.data, got, c.want)
			}
		})
	}
}
