// Tests that every model learns one batch by heart through the engine, whatever its input is.
#include "troupe/train/engine/engine.hpp"
#include "troupe/train/models/models.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace troupe::train {
namespace {

/// A batch with memory of its own.
struct Learned {
  std::vector<std::int32_t> ids, targets;
  std::vector<float> numbers;
  MicroBatch micro;

  Learned(const Spec& input, const Shape& target_shape, std::int32_t classes) {
    for (std::int64_t i = 0; i < input.count(); ++i) {
      ids.push_back(static_cast<std::int32_t>(i * 7 % classes));
      numbers.push_back(std::sin(static_cast<float>(i * i % 97)));
    }
    for (std::int64_t i = 0; i < target_shape.count(); ++i)
      targets.push_back(static_cast<std::int32_t>(i * 3 % classes));
    micro.input = TensorView(
        input.type == DType::i32 ? static_cast<void*>(ids.data()) : numbers.data(), input);
    micro.targets = TensorView(targets.data(), DType::i32, target_shape);
  }
};

struct Course {
  double first = 0, last = 0;
};
Course learn(Model model, Learned batch) {
  collective::Mesh mesh;
  kernels::Device device = kernels::cpu_device();
  Engine engine(std::move(model), {}, mesh, device, {.rate = 1e-2f});
  engine.initialize(/*seed=*/1);
  Course course{.first = engine.evaluate({&batch.micro, 1})};
  for (int step = 0; step < 60; ++step) engine.step({&batch.micro, 1});
  course.last = engine.evaluate({&batch.micro, 1});
  return course;
}

void expect_learned(const Course& course, double classes) {
  EXPECT_NEAR(course.first, std::log(classes), 0.4);
  EXPECT_LT(course.last, 0.1 * course.first);
}

TEST(Models, Gpt2LearnsABatch) {
  expect_learned(
      learn(models::gpt2({.vocabulary = 11, .context = 8, .layers = 2, .heads = 2, .channels = 16}),
            Learned({DType::i32, {2, 8}}, {2, 8}, 11)),
      11);
}

TEST(Models, LlamaLearnsABatch) {
  expect_learned(learn(models::llama({.vocabulary = 11,
                                      .layers = 2,
                                      .heads = 4,
                                      .kv_heads = 2,
                                      .channels = 16,
                                      .inner = 24}),
                       Learned({DType::i32, {2, 8}}, {2, 8}, 11)),
                 11);
}

TEST(Models, MlpLearnsABatch) {
  expect_learned(learn(models::mlp({.in = 12, .hidden = {32}, .classes = 5}),
                       Learned({DType::f32, {8, 12}}, {8}, 5)),
                 5);
}

TEST(Models, CnnLearnsABatch) {
  expect_learned(
      learn(models::cnn(
                {.height = 12, .width = 10, .first = 4, .second = 8, .hidden = 32, .classes = 5}),
            Learned({DType::f32, {8, 1, 12, 10}}, {8}, 5)),
      5);
}

}  // namespace
}  // namespace troupe::train
