package controllers

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/merchant-operator/merchant-operator/api/published"
)

var _ = Describe("A published key restored from a backup", func() {
	It("is not rotated, and gets a revision that nobody has seen vanish", func() {
		w := newWorld()
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee").trigger("a"))
		plaintext, record := w.delivered("till-key"), w.record(key)
		w.stop()
		record.Revision -= time.Hour.Milliseconds() // the backup is of a key that was issued an hour ago
		backup, err := published.EncodeKey(w.credentials, record)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.kube.Delete(context.Background(), backup.DeepCopy())).To(Succeed())
		Expect(w.kube.Create(context.Background(), backup)).To(Succeed())

		w.startOperator()
		Eventually(func() int64 { return w.record(key).Revision }).Should(BeNumerically(">=", backup.CreationTimestamp.UnixMilli()))
		restored := w.record(key)
		record.Revision = restored.Revision
		Expect(restored).To(Equal(record))
		Expect(w.live(restored, plaintext)).To(BeTrue())
		Expect(w.delivered("till-key")).To(Equal(plaintext))
	})
})
